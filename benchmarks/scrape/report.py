"""The document and the picture, from measured values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.scrape.engine import EngineCost
from benchmarks.scrape.fleet import Cost
from benchmarks.scrape.memory import Kept
from benchmarks.scrape.serving import Served
from benchmarks.scrape.steps import Steps

Row = Sequence[object]


def table(head: Row, rows: Iterable[Row]) -> str:
    """Render a Markdown table; numbers are formatted by the caller."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def steps_table(measured: Mapping[str, tuple[int, int, Steps]]) -> str:
    """Render what each step of one scrape costs."""
    rows = [
        (
            name,
            f"{size:,}",
            f"{count:,}",
            *map(_ms, (one.fetch, one.fetch_anew, one.filter_and_parse, one.whole)),
        )
        for name, (size, count, one) in measured.items()
    ]
    head = (
        "page",
        "bytes",
        "samples",
        "fetch",
        "fetch, new connection",
        "filter and parse",
        "whole scrape",
    )
    return table(head, rows)


def fleet_table(costs: Sequence[Cost]) -> str:
    """Render every scraper on every fleet, with our cost over theirs."""
    own = {(one.targets, one.scraper): one.cpu_ms_per_scrape for one in costs}
    rows = [
        (
            one.targets,
            one.scraper,
            _ms(one.cpu_ms_per_scrape),
            _ratio(own, one, "kvcache-exporter"),
            _ratio(own, one, "kvcache-exporter, whole page"),
            f"{one.cores:.1%}",
            f"{one.resident_bytes / 2**20:.0f}",
            f"{one.bytes_asked / max(1, one.scrapes):,.0f}",
        )
        for one in costs
    ]
    head = (
        "targets", "scraper", "CPU ms per scrape", "ours / this", "ours, whole page / this",
        "of a core", "resident MiB", "bytes per scrape",
    )  # fmt: skip
    return table(head, rows)


def _ratio(own: Mapping[tuple[int, str], float], one: Cost, ours: str) -> str:
    if one.scraper.startswith("kvcache") or not one.cpu_ms_per_scrape:
        return ""
    return f"{own[one.targets, ours] / one.cpu_ms_per_scrape:.2f}"


def growth_table(costs: Sequence[Cost]) -> str:
    """Render what one more target takes, from the smallest and the largest fleet."""
    rows = []
    for name in dict.fromkeys(one.scraper for one in costs):
        own = sorted((one for one in costs if one.scraper == name), key=lambda one: one.targets)
        few, many = own[0], own[-1]
        if few is not many:
            more = (many.resident_bytes - few.resident_bytes) / (many.targets - few.targets)
            rows.append((name, f"{few.targets} to {many.targets}", f"{more / 2**20:.3f}"))
    return table(("scraper", "targets", "resident MiB per further target"), rows)


def served_table(one: Served) -> str:
    """Render how our own port does."""
    rows = [
        ("start of the process to the first page", f"{one.start_seconds:.2f} s"),
        ("page", f"{one.page_bytes:,} bytes, {one.gzip_bytes:,} as gzip"),
        ("answer to 1 client, median / 99 %", _pair(one.one_client)),
        ("answer to 50 clients at once, median / 99 %", _pair(one.many_clients)),
        ("SIGTERM to exit", f"{one.exit_seconds:.2f} s"),
    ]
    return table((f"{one.targets} targets, one engine each", ""), rows)


def engine_table(costs: Sequence[EngineCost]) -> str:
    """Render what a scrape costs a running vLLM."""
    rows = [(one.route, _ms(one.cpu_ms), f"{one.bytes:,}") for one in costs]
    return table(("route", "CPU ms in vLLM's API process", "bytes"), rows)


def memory_table(kept: Sequence[Kept]) -> str:
    """Render the memory of an engine over time."""
    rows = [(one.hours, f"{one.bytes_per_engine / 1024:.0f}") for one in kept]
    return table(("simulated hours", "KiB per engine"), rows)


def picture(costs: Sequence[Cost], path: Path) -> None:
    """Draw how CPU and memory grow with the number of targets."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for name in dict.fromkeys(one.scraper for one in costs):
        own = sorted((one for one in costs if one.scraper == name), key=lambda one: one.targets)
        x = [one.targets for one in own]
        left.plot(x, [100 * one.cores for one in own], marker="o", label=name)
        right.plot(x, [one.resident_bytes / 2**20 for one in own], marker="o", label=name)
    left.set(xlabel="targets", ylabel="% of a core at one scrape in 10 s", ylim=(0, None))
    right.set(xlabel="targets", ylabel="resident MiB", ylim=(0, None))
    left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _pair(seconds: tuple[float, float]) -> str:
    return f"{seconds[0] * 1e3:.1f} / {seconds[1] * 1e3:.1f} ms"
