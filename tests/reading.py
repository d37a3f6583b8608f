"""Pages to readings, as the exporter itself does it."""

from __future__ import annotations

from kvcache_exporter.engines import vllm
from kvcache_exporter.model import EngineReading, Problem, Sample, TargetReading
from kvcache_exporter.samples import Parser


def samples(body: bytes) -> list[Sample]:
    found = Parser(vllm.NAMES, vllm.PLAIN).parse(body)
    assert not isinstance(found, Problem), found.text
    return found


def read(*bodies: bytes, num_gpu_blocks: int | None = None) -> TargetReading:
    """Read pages of one target in turn; return what the last one says."""
    memory = None
    for body in bodies:
        reading, memory = vllm.read(samples(body), memory, num_gpu_blocks)
    return reading


def only(*bodies: bytes, num_gpu_blocks: int | None = None) -> EngineReading:
    [engine] = read(*bodies, num_gpu_blocks=num_gpu_blocks).engines
    return engine


def codes(engine: EngineReading) -> set[str]:
    return {problem.code for problem in engine.problems}
