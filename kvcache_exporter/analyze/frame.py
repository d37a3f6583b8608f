"""What every input is turned into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvcache_exporter.model import GpuReading, Problem, Sample
from kvcache_exporter.schema import OperatorError as InputError

__all__ = ["Frame", "InputError"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One scrape of one target: samples under vLLM's names, or why there are none."""

    time: float
    """Unix seconds, or seconds since any moment that the whole input shares."""
    target: str
    samples: Sequence[Sample] | Problem
    gpus: tuple[GpuReading, ...] = ()
