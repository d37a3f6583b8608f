"""Ways in which an engine loses blocks; a way overrides the moments at which it strikes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.detection.workload import DAY, HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Nothing is lost before ``start``; times in seconds, losses in blocks."""

    start: float = 12 * HOUR

    def per_hour(self, time: float, running: int, lost: int) -> float:
        """Mean blocks lost an hour right now."""
        return 0.0

    def at_finish(self, rng: np.random.Generator, blocks: int) -> int:
        """Blocks a normally finished request of that many blocks leaves behind."""
        return 0

    def at_abort(self, rng: np.random.Generator, blocks: int) -> int:
        """Blocks an aborted request leaves behind."""
        return 0

    def at_preemption(self, rng: np.random.Generator, blocks: int) -> int:
        """Blocks a preempted request leaves behind."""
        return 0


@dataclass(frozen=True, slots=True)
class Constant(Leak):
    """The same rate for ever, or until ``end``."""

    rate: float
    end: float = float("inf")

    def per_hour(self, time: float, running: int, lost: int) -> float:
        return self.rate if time < self.end else 0.0


@dataclass(frozen=True, slots=True)
class Accelerating(Leak):
    """The rate itself grows by ``rate`` each hour."""

    rate: float

    def per_hour(self, time: float, running: int, lost: int) -> float:
        return self.rate * (time - self.start) / HOUR


@dataclass(frozen=True, slots=True)
class Plateau(Leak):
    """Stops for good once ``ceiling`` blocks are lost; a tall ``rate`` makes it a step."""

    rate: float
    ceiling: int

    def per_hour(self, time: float, running: int, lost: int) -> float:
        return self.rate if lost < self.ceiling else 0.0


@dataclass(frozen=True, slots=True)
class Step(Leak):
    """Everything at once."""

    blocks: int

    def per_hour(self, time: float, running: int, lost: int) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class UnderLoad(Leak):
    """Only while at least ``running`` requests run."""

    rate: float
    running: int

    def per_hour(self, time: float, running: int, lost: int) -> float:
        return self.rate if running >= self.running else 0.0


@dataclass(frozen=True, slots=True)
class Nightly(Leak):
    """Only in the first hours of each day."""

    rate: float
    hours: float

    def per_hour(self, time: float, running: int, lost: int) -> float:
        return self.rate if time % DAY < self.hours * HOUR else 0.0


@dataclass(frozen=True, slots=True)
class PerAbort(Leak):
    """An aborted request loses all its blocks with this probability."""

    probability: float

    def at_abort(self, rng: np.random.Generator, blocks: int) -> int:
        return blocks if rng.random() < self.probability else 0


@dataclass(frozen=True, slots=True)
class PerFinish(Leak):
    """A finished request loses some blocks with this probability."""

    probability: float
    blocks: int = 1

    def at_finish(self, rng: np.random.Generator, blocks: int) -> int:
        return min(self.blocks, blocks) if rng.random() < self.probability else 0


@dataclass(frozen=True, slots=True)
class PerPreemption(Leak):
    """A preempted request loses a share of its blocks with this probability."""

    probability: float
    share: float = 1.0

    def at_preemption(self, rng: np.random.Generator, blocks: int) -> int:
        return int(blocks * self.share) if rng.random() < self.probability else 0
