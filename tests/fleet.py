"""A fleet of pages in memory, and the exporter's cycle over it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from version_pages import EngineState, page

from kvcache_exporter.config import Config, TargetConfig
from kvcache_exporter.discovery import open_finders
from kvcache_exporter.hosts.gpu_watch import GpuState
from kvcache_exporter.model import Problem, Scrape, Snapshot, Target
from kvcache_exporter.pipeline import Pipeline
from kvcache_exporter.serve import pages
from kvcache_exporter.world import World

PAGES = Path(__file__).parent / "data" / "pages"
BUSY = page("0.32.0", EngineState(used_blocks=7, running=2))
Answer = bytes | Problem | Exception


@dataclass
class Fleet:
    """The outside world: what each server answers now, and a clock that moves by hand."""

    answers: dict[str, Answer] = field(default_factory=dict)
    now: float = 1_790_000_000.0
    asked: list[str] = field(default_factory=list)
    versions: int = 0
    gpu_error: Exception | None = None

    async def fetch(self, target: Target) -> Scrape:
        self.asked.append(target.name)
        answer = self.answers[target.name]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Problem):
            return Scrape(target.name, self.now, 0.1, None, answer)
        return Scrape(target.name, self.now, 0.1, answer)

    async def fetch_version(self, target: Target) -> str | None:
        self.versions += 1
        return "0.32.0"

    async def read(self, targets: Sequence[Target], now: float) -> GpuState:
        if self.gpu_error is not None:
            raise self.gpu_error
        return GpuState()

    def world(self) -> World:
        return World(self.fetch, self.fetch_version, self, lambda: self.now)


class Exporter:
    """A pipeline over a fleet, cycle by cycle."""

    def __init__(self, fleet: Fleet, config: Config | None = None) -> None:
        self.fleet = fleet
        urls = [TargetConfig(f"http://{name}") for name in fleet.answers]
        self.config = config or Config(targets=tuple(urls))
        self.pipeline = Pipeline(self.config, open_finders(self.config), fleet.world())

    def cycle(self, seconds: float = 10.0) -> Snapshot:
        self.fleet.now += seconds
        self.pipeline._cycles = 0  # the first cycle waits for nobody
        return asyncio.run(self.pipeline.cycle())

    def reconfigure(self, config: Config) -> None:
        self.pipeline.reconfigure(config, open_finders(config), self.fleet.world())


def metrics(snapshot: Snapshot, name: str) -> dict[str, float]:
    """The samples of one family by target."""
    text = pages(snapshot)["/metrics"].body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {s.labels.get("target", ""): s.value for s in families[name].samples}


def problems(snapshot: Snapshot) -> dict[str, set[str]]:
    return {s.target.name: {p.code for p in s.problems} for s in snapshot.targets}


BROKEN: dict[str, Answer] = {
    "refused:1": Problem("refused", "nothing listens there: start vLLM"),
    "html:1": b"<html></html>\n",
    "empty:1": b"",
    "foreign:1": b"node_load1 1\n",
    "stats-off:1": (PAGES / "vllm-0.32.0-cpu-stats-disabled.prom").read_bytes(),
    "cut:1": BUSY[:-1],
    "malformed:1": BUSY.replace(b"vllm:num_requests_running{", b"vllm:num_requests_running{,"),
    "raises:1": RuntimeError("a fault of ours"),
}
