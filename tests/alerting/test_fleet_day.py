"""A day and more of a simulated fleet, through the real judge, under the real rules."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from alert_rules import call
from real_parts import ALERTING

from kvcache_exporter.demo import INTERVAL_SECONDS, stage
from kvcache_exporter.expose import render
from kvcache_exporter.simulate.cast import STORY_SECONDS, demo_cast
from kvcache_exporter.simulate.fleet import Fleet

SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$")
RULES = sorted(str(path) for path in (ALERTING / "rules").glob("*.yml"))
PAGE_OR_TICKET = 'ALERTS{alertstate="firing", severity=~"critical|warning"}'
Series = Mapping[str, list[str]]


async def _told() -> Series:
    fleet, cycles = Fleet(demo_cast()), 0
    series: dict[str, list[str]] = {}
    async with stage(fleet) as running:
        while fleet.clock < STORY_SECONDS:
            page = render(await running.cycle()).decode()
            for name, value in _samples(page, fleet.start_time):
                values = series.setdefault(name, [])
                missing = cycles - len(values)
                values += ["stale"][:missing] + ["_"] * (missing - 1) + [value]
            cycles += 1
    return series | {"up" + _with_job(None): ["1"] * cycles}


def _samples(page: str, start_time: float) -> Iterator[tuple[str, str]]:
    """Samples as promtool writes them; its clock begins at 0, so moments are moved there."""
    for line in page.splitlines():
        if match := SAMPLE.match(line):
            name, labels, value = match.groups()
            if name.endswith("_timestamp_seconds"):
                value = repr(float(value) - start_time)
            yield name + _with_job(labels), value


def _with_job(labels: str | None) -> str:
    inner = labels[1:-1] + "," if labels else ""
    return f'{{{inner}job="kvcache-exporter",instance="localhost:10158"}}'


def _expected(alerts: Mapping[str, set[str]]) -> list[dict[str, object]]:
    labels = [f'{{alertname="{a}",target="{target}"}}' for target in alerts for a in alerts[target]]
    return [{"labels": one.replace(',target=""', ""), "value": 1} for one in labels]


def _test(series: Series) -> dict[str, object]:
    seconds = INTERVAL_SECONDS * max(map(len, series.values()))
    ever = f"group by (alertname, target) (max_over_time({PAGE_OR_TICKET}[{seconds:.0f}s]))"
    check = {"expr": ever, "eval_time": f"{seconds:.0f}s", "exp_samples": _expected(EXPECTED)}
    return {
        "interval": f"{INTERVAL_SECONDS:.0f}s",
        "input_series": [{"series": k, "values": " ".join(v)} for k, v in series.items()],
        "promql_expr_test": [check],
    }


PREDICTED = {"KVCacheBlocksDeclining", "KVCacheExhaustionPredicted"}
EXPECTED: dict[str, set[str]] = {
    "agents-leaking": PREDICTED | {"KVCacheLeakProven"},
    "summary-leaking-busy": PREDICTED | {"KVCacheLeakTrend"},
    "rag-drifting": {"KVCacheHitRatioDrift"},
    "batch-saturated": {"KVCacheSaturated"},
    "vision-stalled": {"KVCacheEngineStalled"},
    "": {"KVCacheVersionLeaking"},
}
"""Pages and tickets by target, or of the fleet as a whole; who is not here is well."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_day_of_a_fleet_makes_the_alerts_of_its_stories_and_no_other(tmp_path: Path):
    file = tmp_path / "day.yml"
    whole = {
        "rule_files": RULES,
        "evaluation_interval": "1m",
        "tests": [_test(asyncio.run(_told()))],
    }
    file.write_text(yaml.safe_dump(whole))
    call("promtool", "test", "rules", file)


def test_the_stories_have_healthy_engines_too():
    names = {member.name for member in demo_cast()}
    assert set(EXPECTED) - {""} < names
    assert len(names - set(EXPECTED)) >= 3
