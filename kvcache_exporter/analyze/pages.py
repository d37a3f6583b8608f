"""Recordings of whole ``/metrics`` pages, as ``record`` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvcache_exporter import recording
from kvcache_exporter.analyze.frame import Frame
from kvcache_exporter.engines import vllm
from kvcache_exporter.model import Problem
from kvcache_exporter.samples import Parser


def frames(path: Path) -> Iterator[Frame]:
    """Yield one frame a line; raise ``InputError`` for a line that is no recording."""
    parsers: dict[str, Parser] = {}
    for entry in recording.read(path):
        scrape = entry.scrape
        parser = parsers.setdefault(scrape.target, Parser(vllm.NAMES, vllm.PLAIN))
        if scrape.body is None:
            problem = scrape.problem or Problem("failed", "no answer was recorded")
            yield Frame(scrape.time, scrape.target, problem, entry.gpus)
            continue
        samples = parser.parse(scrape.body) or vllm.absence(scrape.body)
        yield Frame(scrape.time, scrape.target, samples, entry.gpus)
