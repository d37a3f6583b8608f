"""The sizes in docs/scaling.md are what the renderer makes; ``--update`` writes them anew."""

from __future__ import annotations

from pathlib import Path

from golden_file import Golden
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.series import FLEETS, known_engine, series_of, snapshot, table
from kvcache_exporter.expose import render

DOCUMENT = Path(__file__).parents[1] / "docs/scaling.md"
BEGIN, END = "<!-- printed by: python -m benchmarks.series -->\n", "<!-- end -->\n"


def test_the_documented_sizes_are_the_renderers(golden: Golden) -> None:
    head, found, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    assert found
    made = f"{head}{BEGIN}\n{table(FLEETS, cost=False)}\n\n{END}{rest.partition(END)[2]}"
    golden(DOCUMENT, made)


def test_every_engine_of_the_fleet_has_series_of_its_own() -> None:
    page = render(snapshot(7, *known_engine()))
    families = list(text_string_to_metric_families(page.decode()))
    samples = [(s.name, *s.labels.items()) for family in families for s in family.samples]
    assert len(samples) == len(set(samples)) == series_of(page)
    [used] = [family for family in families if family.name == "kvcache_used_blocks"]
    assert len(used.samples) == 7
