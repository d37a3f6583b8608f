"""What an audit counted on the page, in explain, from the doctor; what it costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet import BUSY, Exporter, Fleet
from test_audit import report

from benchmarks.audit.measure import HEADER, POOLS, measure, table
from kvcache_exporter.audits.answers import (
    silent,
)
from kvcache_exporter.config import Config, TargetConfig
from kvcache_exporter.doctor import Level
from kvcache_exporter.doctor.audit import _answer
from kvcache_exporter.explain import _owners
from kvcache_exporter.model import Audit, EngineStatus, Scrape, Snapshot, Target
from kvcache_exporter.serve import pages
from kvcache_exporter.vllm_plugin.auditor import COST_SHARE


class Audited(Fleet):
    """Servers whose audits listen on TCP."""

    async def fetch_audit(self, target: Target) -> Scrape:
        self.asked.append(target.url)
        return Scrape(target.name, self.now, 0.1, self.told)

    told = b""

    def world(self) -> Any:
        return replace(super().world(), fetch_audit=self.fetch_audit)


def audited(told: bytes) -> tuple[Snapshot, list[str]]:
    fleet = Audited({"good:1": BUSY})
    fleet.told = told
    config = Config(targets=(TargetConfig("http://good:1", audit_url="http://good:9400"),))
    exporter = Exporter(fleet, config)
    exporter.cycle()
    return exporter.cycle(), fleet.asked


def only(snapshot: Snapshot) -> EngineStatus:
    [engine] = snapshot.engines
    return engine


def test_an_audit_at_a_port_reaches_the_page() -> None:
    told = report(time=5.0, free_blocks=90, orphaned_blocks=2, owners={"running": 8})
    snapshot, asked = audited(json.dumps(told).encode())
    page = pages(snapshot)["/metrics"].body.decode()

    assert "http://good:9400" in asked
    assert 'kvcache_audit_up{target="good:1",engine="0"} 1.0' in page
    assert 'kvcache_audit_blocks{target="good:1",engine="0",owner="orphaned"} 2' in page
    assert only(snapshot).audit is not None


def test_explain_stacks_the_owners() -> None:
    counted = Audit(
        7, "0", True, pool_blocks=100, free_blocks=50, cached_blocks=20, orphaned_blocks=5,
        owners=(("running", 45), ("ghost", 0)), orphaned_after=(("abort", 5),),
    )  # fmt: skip
    assert list(_owners(counted)) == [
        "  Inside the engine (process 7)",
        "    orphaned                    5    5.0%  ##",
        "    running                    45   45.0%  ##################",
        "    cached                     20   20.0%  ########",
        "    free                       30   30.0%  ############",
        "    5 orphaned after abort",
    ]
    broken = replace(counted, double_booked_blocks=3)
    assert "    ! 3 blocks are free and somebody's at once" in _owners(broken)
    assert "changed inside" in " ".join(_owners(silent("0", "vLLM has changed inside")))
    assert list(_owners(None)) == []


@pytest.mark.parametrize(
    ("counted", "level"),
    [
        (Audit(7, "0", True, pool_blocks=9, settled_orphaned_blocks=0), Level.FINE),
        (Audit(7, "0", True, pool_blocks=9, settled_orphaned_blocks=2), Level.PROBLEM),
        (Audit(7, "0", True, settled_orphaned_blocks=0, settled_ghost_blocks=1), Level.PROBLEM),
        (Audit(7, "0", True, orphaned_blocks=2), Level.UNKNOWN),
        (Audit(7, "0", True, pool_blocks=9, double_booked_blocks=1), Level.PROBLEM),
        (silent("0", "vLLM has changed inside"), Level.WARNING),
    ],
)
def test_the_doctor_says_what_is_lost(counted: Audit, level: Level) -> None:
    assert _answer("audit", counted).level is level


def test_an_audit_that_fails_harms_nothing_but_itself() -> None:
    snapshot, _ = audited(b"gibberish")
    page = pages(snapshot)["/metrics"].body.decode()

    assert 'kvcache_audit_up{target="good:1",engine="0"} 0.0' in page
    assert 'kvcache_used_blocks{target="good:1",engine="0"} 7' in page
    assert {p.code for p in snapshot.targets[0].problems} == {"audit_silent"}


def test_the_documented_costs_are_those_of_the_benchmark() -> None:
    """Another machine gives other numbers: the rows and columns are held, not the values."""
    document = (Path(__file__).parents[1] / "docs" / "audit.md").read_text(encoding="utf-8")
    part = document.partition("benchmarks.audit -->\n\n")[2].partition("\n\n")[0]
    head, _, *rows = (line.strip("| ").split(" | ") for line in part.strip().splitlines())

    assert tuple(head) == HEADER
    assert [row[0] for row in rows] == [f"{blocks:,}" for blocks in POOLS]
    assert all(float(row[4].rstrip("%")) / 100 <= COST_SHARE + 1e-5 for row in rows)


def test_the_benchmark_measures_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    # An audit on a socket of this very process would be found by later tests.
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", "127.0.0.1:0")
    printed = table([measure(blocks, rounds=1, steps=10) for blocks in (0, 5_000)])
    assert [len(line.split(" | ")) for line in printed.splitlines()] == [len(HEADER)] * 4
