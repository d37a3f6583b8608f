"""Go or no-go: is GPU memory stable, do free blocks come back, do slow requests stay rare?

A rehearsal that could not answer a question says so; it counts neither for nor against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from kvcache_exporter.model import Judgement, State
from kvcache_exporter.soak.request import Outcome
from kvcache_exporter.soak.watch import Moment

GPU_GROWTH_RATIO = 0.02
"""Growth after warm-up that is still noise; a healthy H200 grew by 0.1 % after its warm-up."""
WARM_UP_SHARE = 0.2
SLOW_FACTOR = 2.0
"""A request is slow at twice the median of its profile in the first third, by token."""
SLOW_RISE = 0.10
SIGMAS = 3.0
"""A rise must also stand out from chance: three standard errors of the difference of shares."""
ENOUGH_REQUESTS = 30


@dataclass(frozen=True, slots=True)
class Ruling:
    """One of the three judgements; ``passed`` None = could not be judged."""

    question: str
    passed: bool | None
    because: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Everything that was seen."""

    outcomes: Sequence[Outcome]
    moments: Sequence[Moment]
    judgements: Sequence[tuple[str, Judgement]]
    drained: bool
    settled_used_blocks: int | None
    """Used blocks at the end, after the drain and the time to settle; None = never idle."""
    idle_used_blocks: int | None
    """Used blocks before the first request, if the server was idle then."""
    interrupted: bool = False


def judge(seen: Rehearsal) -> tuple[Ruling, ...]:
    """Give the three judgements."""
    return gpu_memory(seen), free_blocks(seen), slow_requests(seen)


def exit_code(rulings: Sequence[Ruling]) -> int:
    """Return 0 for go, 1 when one of the three is bad, 2 (no-go) when two or more are."""
    return min(2, sum(ruling.passed is False for ruling in rulings))


def gpu_memory(seen: Rehearsal) -> Ruling:
    """Compare the driver's figure after warm-up with the one at the end."""
    question = "GPU memory stable"
    sizes = [m.gpu_used_bytes for m in seen.moments if m.gpu_used_bytes is not None]
    if len(sizes) < 5:
        return Ruling(question, None, "no GPU of this server is seen from here")
    after = sizes[int(len(sizes) * WARM_UP_SHARE) :]
    third = max(1, len(after) // 3)
    before, late = median(after[:third]), median(after[-third:])
    growth = (late - before) / before if before else 0.0
    text = (
        f"{before / 2**30:.2f} GiB after warm-up, {late / 2**30:.2f} GiB at the end ({growth:+.1%})"
    )
    return Ruling(question, growth <= GPU_GROWTH_RATIO, text)


def free_blocks(seen: Rehearsal) -> Ruling:
    """Blocks must return to base after the drain; a leak that the judge calls counts as well."""
    question = "free blocks come back"
    leaks = [(e, j) for e, j in seen.judgements if j.state is State.LEAK or j.leak_active]
    base = seen.idle_used_blocks or 0
    if seen.settled_used_blocks is None:
        if leaks:
            return Ruling(question, False, _reasons(leaks))
        return Ruling(question, None, "the server was not idle at the end, so nothing is proven")
    lost = seen.settled_used_blocks - base
    if lost <= 0 and not leaks:
        return Ruling(question, True, f"after the drain all blocks are back ({base:,} in use)")
    text = f"{max(lost, 0):,} blocks did not come back after the drain"
    if lost > 0:
        text += _per_event(lost, seen.outcomes)
    return Ruling(question, False, text + (f"; {_reasons(leaks)}" if leaks else ""))


def _per_event(lost: int, outcomes: Sequence[Outcome]) -> str:
    cancels = sum(outcome.cancelled for outcome in outcomes)
    finished = sum(outcome.ok and not outcome.cancelled for outcome in outcomes)
    parts = []
    if cancels:
        parts.append(f"{lost / cancels:.1f} for each of {cancels:,} aborts")
    if finished:
        parts.append(f"{lost / finished:.2f} for each of {finished:,} finished requests")
    return f": {' or '.join(parts)}" if parts else ""


def _reasons(leaks: Sequence[tuple[str, Judgement]]) -> str:
    return "; ".join(f"engine {engine}: {', '.join(j.because)}" for engine, j in leaks)


def slow_requests(seen: Rehearsal) -> Ruling:
    """Compare the share of slow requests in the last third with the first third's."""
    question = "slow requests stay rare"
    good = [one for one in seen.outcomes if one.ok and not one.cancelled]
    failed = sum(not one.ok for one in seen.outcomes)
    if seen.outcomes and failed > SLOW_RISE * len(seen.outcomes):
        return Ruling(question, False, f"{failed:,} of {len(seen.outcomes):,} requests failed")
    if len(good) < ENOUGH_REQUESTS:
        return Ruling(question, None, f"{len(good)} answered requests are too few to compare")
    third = len(good) // 3
    early, late = good[:third], good[-third:]
    usual = _Usual.of(early)
    before, after = usual.slow_share(early), usual.slow_share(late)
    noise = SIGMAS * sqrt((before * (1 - before) + after * (1 - after)) / third)
    text = f"{before:.0%} slow in the first third, {after:.0%} in the last (noise {noise:.0%})"
    return Ruling(question, after - before <= max(SLOW_RISE, noise), text)


@dataclass(frozen=True, slots=True)
class _Usual:
    """Median time to the first token, and for each further one, of each profile."""

    first_token_seconds: dict[str, float]
    token_seconds: dict[str, float]

    @classmethod
    def of(cls, some: Sequence[Outcome]) -> _Usual:
        """Take the medians of *some* requests."""
        by_profile: dict[str, list[Outcome]] = {}
        for one in some:
            by_profile.setdefault(one.profile, []).append(one)
        return cls(
            {name: median(map(_first, those)) for name, those in by_profile.items()},
            {name: median(map(_each, those)) for name, those in by_profile.items()},
        )

    def slow_share(self, some: Sequence[Outcome]) -> float:
        """Return the share of requests that were slow to begin or slow to go on."""
        known = [one for one in some if one.profile in self.token_seconds]
        return sum(map(self._is_slow, known)) / len(known) if known else 0.0

    def _is_slow(self, one: Outcome) -> bool:
        begun = _first(one) > SLOW_FACTOR * self.first_token_seconds[one.profile]
        return begun or _each(one) > SLOW_FACTOR * self.token_seconds[one.profile]


def _first(one: Outcome) -> float:
    return one.latency_seconds if one.first_token_seconds is None else one.first_token_seconds


def _each(one: Outcome) -> float:
    return (one.latency_seconds - _first(one)) / max(1, (one.completion_tokens or 1) - 1)
