"""What is remembered of a leak from one moment to the next: established, latched, revoked.

A leak is established when it is proven, by a count inside the engine or at idle, or when a break
stands at some blocks in a row; where the engine is counted inside, nothing else establishes one. It
stays until it is disproved (nothing lost by count, an idle reading of an empty pool, a restart,
less in use than was said to be lost) or until nothing has supported it for the latch time. An
engine that leaked before it restarted needs a break to stand once only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvcache_exporter.audits.answers import nothing_lost
from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory of a leak; times in Unix seconds, NaN = never."""

    epoch: int = 0
    block: int = 0
    """The block whose break was counted last."""
    fires: int = 0
    """Blocks in a row at which the break stood."""
    since: float = math.nan
    """When the leak was established."""
    supported: float = math.nan
    """When evidence last spoke for it."""
    blocks: float = 0.0
    """Most that was proven, else what the break claimed."""
    proven: bool = False
    because: str = ""
    leaked_before: float = math.nan
    """When a leak ended with the process that leaked."""
    blocks_before: float = 0.0

    @property
    def active(self) -> bool:
        """Whether a leak is established."""
        return not math.isnan(self.since)


def remember(
    leak: Leak, indications: Mapping[str, Indication], history: History, settings: JudgeSettings
) -> Leak:
    """The memory after one more observation."""
    if history.epoch != leak.epoch:
        leak = _after_restart(leak, history)
    leak = _count(leak, indications.get("slope"), history)
    leak = _establish(leak, indications, history, settings)
    return _forget(leak) if leak.active and _is_over(leak, history, settings) else leak


def _after_restart(leak: Leak, history: History) -> Leak:
    if not leak.active:
        return replace(leak, epoch=history.epoch, block=0, fires=0)
    return Leak(history.epoch, leaked_before=history.time, blocks_before=leak.blocks)


def _count(leak: Leak, slope: Indication | None, history: History) -> Leak:
    if history.blocks.total == leak.block:
        return leak
    fires = leak.fires + 1 if slope is not None and slope.alarming else 0
    return replace(leak, block=history.blocks.total, fires=fires)


def _establish(
    leak: Leak, indications: Mapping[str, Indication], history: History, settings: JudgeSettings
) -> Leak:
    floor, slope = indications.get("idle_floor"), indications.get("slope")
    since = leak.since if leak.active else history.time
    counted = indications.get("audit")
    if counted is not None and counted.low:
        return replace(leak, since=since, supported=history.time, blocks=counted.low, proven=True,
                       because=counted.because)  # fmt: skip
    if nothing_lost(history.audit):
        return replace(leak, proven=False) if leak.proven else leak
    if floor is not None and floor.low:
        return replace(leak, since=since, supported=history.time, blocks=floor.low, proven=True,
                       because=floor.because)  # fmt: skip
    for seen in (floor, indications.get("wedge")):
        if seen is not None and seen.state is State.LEAK:
            return replace(leak, since=since, supported=history.time, blocks=seen.value or 0.0,
                           proven=False, because=seen.because)  # fmt: skip
    if slope is None or not slope.alarming or leak.fires < _needed(leak, history, settings):
        return replace(leak, proven=False) if leak.proven else leak
    return replace(
        leak,
        since=since,
        supported=history.time,
        blocks=slope.details.get("rise") or 0.0,
        proven=False,
        because=slope.because,
    )


def _needed(leak: Leak, history: History, settings: JudgeSettings) -> int:
    """Blocks in a row at which a break must stand."""
    if not math.isnan(leak.leaked_before):
        return 1
    held = history.hold_seconds
    return settings.trend_hold_blocks_in_a_row if held else settings.trend_blocks_in_a_row


def _is_over(leak: Leak, history: History, settings: JudgeSettings) -> bool:
    if history.idle.clean_time >= leak.since:
        return True
    if nothing_lost(history.audit) and history.time - leak.supported > settings.proof_seconds:
        return True  # not at once: a lost block that is cached may be lent to a request for a while
    if history.time - leak.supported > settings.latch_seconds:
        return True
    headroom = history.blocks.last("headroom")
    return not leak.proven and headroom < leak.blocks / 2


def _forget(leak: Leak) -> Leak:
    return Leak(leak.epoch, leak.block, leaked_before=leak.leaked_before,
                blocks_before=leak.blocks_before)  # fmt: skip
