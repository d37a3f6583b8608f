"""What the judge takes as given: every constant with its unit and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """One parameter set for all engines; only hold and role differ from target to target."""

    hold_seconds: float | None = None
    """Time blocks may rightly outlive their request; None = by connector (see below)."""
    connector_hold_seconds: float = 600.0
    """Default hold with a KV connector: NIXL gives up after 480 s, plus two minutes."""
    settle_seconds: float = 30.0
    """Frees are deferred until in-flight steps end, so a floor is read this long after R=0."""
    settle_scrapes: int = 2
    floor_ratio: float = 0.01
    """Smallest unproven idle floor worth a word, as a share of the pool ..."""
    floor_blocks: int = 4
    """... and in blocks."""
    block_seconds: float = 900.0
    """Length of a history block: long enough that requests come and go within it."""
