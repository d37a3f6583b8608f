"""What changed since a baseline, by how much, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from kvcache_exporter.baseline.picture import Picture, Spread

MEMORY_NOISE_RATIO = 0.02
"""A healthy H200 moved by 0.1 % after its warm-up."""
HOST_NOISE_RATIO = 0.10
HIT_RATIO_NOISE = 0.08
"""Points; the drift indicator's own gate."""
LATENCY_NOISE_RATIO = 0.25


class Weight(IntEnum):
    """What a change means; the values are the exit codes of ``baseline compare``."""

    SAME = 0
    DRIFTED = 1
    LEAKING = 2


@dataclass(frozen=True, slots=True)
class Change:
    """One figure then and now."""

    what: str
    weight: Weight
    text: str


def compare(before: Picture, now: Picture) -> list[Change]:
    """Return a line for every figure that both pictures have."""
    return [
        *_configuration(before, now),
        *_blocks(before, now),
        *_hit_ratio(before, now),
        *_memory("GPU memory", before.gpu_used_bytes, now.gpu_used_bytes, MEMORY_NOISE_RATIO),
        *_memory("host memory", before.host_memory_bytes, now.host_memory_bytes, HOST_NOISE_RATIO),
        *_latency("first token", before.first_token_seconds, now.first_token_seconds),
        *_latency("fixed request", before.total_seconds, now.total_seconds),
    ]


def _configuration(before: Picture, now: Picture) -> Iterator[Change]:
    for name in ("vllm_version", "model_name", "engines", "pool_blocks", "block_size_tokens"):
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            text = f"was {old}, is {new}: the figures below compare two different things"
            yield Change(name.replace("_", " "), Weight.DRIFTED, text)


def _blocks(before: Picture, now: Picture) -> Iterator[Change]:
    if before.used_blocks is None or now.used_blocks is None:
        return
    if not (before.idle and now.idle):
        yield Change("idle blocks", Weight.SAME, "not comparable: the server was not idle")
        return
    more = now.used_blocks - before.used_blocks
    text = f"{before.used_blocks:,} in use at idle then, {now.used_blocks:,} now ({more:+,})"
    yield Change("idle blocks", Weight.LEAKING if more > 0 else Weight.SAME, text)


def _hit_ratio(before: Picture, now: Picture) -> Iterator[Change]:
    if before.hit_ratio is None or now.hit_ratio is None:
        return
    fell = before.hit_ratio - now.hit_ratio
    text = f"{before.hit_ratio:.1%} then, {now.hit_ratio:.1%} now, since each server's start"
    yield Change("hit ratio", Weight.DRIFTED if fell > HIT_RATIO_NOISE else Weight.SAME, text)


def _memory(what: str, before: float | None, now: float | None, noise: float) -> Iterator[Change]:
    if not before or now is None:
        return
    growth = (now - before) / before
    text = f"{before / 2**30:.2f} GiB then, {now / 2**30:.2f} GiB now ({growth:+.1%})"
    yield Change(what, Weight.DRIFTED if growth > noise else Weight.SAME, text)


def _latency(what: str, before: Spread | None, now: Spread | None) -> Iterator[Change]:
    """Slower only if the fastest repetition now is slower than the slowest then, and by enough."""
    if before is None or now is None:
        return
    slower = now.low > before.high and now.median > before.median * (1 + LATENCY_NOISE_RATIO)
    text = (
        f"median {before.median:.3f} s then ({before.low:.3f} to {before.high:.3f}), "
        f"{now.median:.3f} s now ({now.low:.3f} to {now.high:.3f})"
    )
    yield Change(what, Weight.DRIFTED if slower else Weight.SAME, text)
