"""What the judge takes as given: every constant with its unit and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """One parameter set for all engines; only hold and role differ from target to target."""

    judge_seconds: float = 60.0
    """How old a verdict may become while nothing notable happens ..."""
    contradicted_seconds: float = 15.0
    """... how old while the engine rests and shows something else ..."""
    calm_seconds: float = 300.0
    """... and how old while all is well, or as it has been for ..."""
    settled_seconds: float = 600.0
    """... so long, with nothing waiting or standing still."""
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
    held_seconds: float = 600.0
    """An idle engine that holds blocks for this long becomes suspect (for the hold time, if that
    is longer)."""
    floor_seconds: float = 3600.0
    """Age up to which the last idle floor says more about orphans than a break does."""
    proof_blocks: int = 2
    """Fewest orphaned blocks that are reported: one could be the null block of old releases."""
    together_seconds: float = 75.0
    """Idle moments that follow one another faster count as one episode, with what lay between."""
    proof_seconds: float = 600.0
    """Three idle episodes prove a leak when they span this, two settled ones half of it."""
    single_seconds: float = 150.0
    """Without a hold, one idle episode this long ..."""
    single_scrapes: int = 10
    """... and with this many scrapes is a leak (a ticket, not proof) ..."""
    single_ratio: float = 0.1
    """... when it shows at most this share of the pool ..."""
    single_kept: float = 0.9
    """... of which this share was in use throughout the block before."""
    block_seconds: float = 600.0
    """Length of a history block: long enough that requests come and go within it."""
    trend_blocks: int = 8
    """Fewest blocks a break is looked for in."""
    trend_score: float = 5.0
    """Rise over its standard error (as a normal score) that makes a break ..."""
    trend_hold_score: float = 5.5
    """... where blocks may be held after their request, which comes in bursts ..."""
    trend_look_score: float = 3.0
    """Below this raw score nothing is looked into further: most blocks of healthy engines."""
    trend_own_ratio: float = 0.03
    """... of which at least this share must be its own, not shared with load."""
    trend_ratio: float = 0.005
    """Smallest rise, as a share of the pool ..."""
    trend_least_blocks: float = 16.0
    """... and in blocks."""
    trend_full_ratio: float = 0.02
    """Smallest rise on a saturated engine, where a rise shows only as fewer running requests."""
    trend_mix_share: float = 0.5
    """Part of what other request sizes could account for that a rise must exceed."""
    trend_hit_change: float = 0.08
    """A change of the hit ratio from which on sharing between requests counts as changed ..."""
    trend_shared_share: float = 1.0
    """... and this part of what it could account for must be exceeded."""
    trend_load_share: float = 0.035
    """Part of a change in load that the model may get wrong; more in proportion where the break
    shares more with the change in load."""
    trend_blocks_in_a_row: int = 2
    """Blocks in a row at which a break must stand ..."""
    trend_hold_blocks_in_a_row: int = 3
    """... where blocks may be held."""
    latch_seconds: float = 21600.0
    """How long a leak stays reported after the last evidence."""
    memory_seconds: float = 86400.0
    """How long a leak of the process before is remembered over a restart."""
    restart_seconds: float = 3600.0
    """How long a restart is pointed out."""
