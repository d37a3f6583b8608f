"""What speaks against a break: size, headroom, or a change of load, request sizes or sharing."""

from __future__ import annotations

from typing import NamedTuple

from kvcache_exporter.judge_settings import JudgeSettings

PROMPT_AND_OUTPUT = 0.9
"""A request met at a random moment has produced half its output, but long ones are met more often:
0.9 of the mean output for lengths with a log-normal spread of 0.8."""
FULL_SHARE = 0.2
"""From this share of scrapes with nearly everything used on, a block counts as saturated: what
runs is then what fits, not what was asked for."""


GREAT_SHARE = 0.1
"""More than this of the pool cannot be lost without far fewer requests in a full one ..."""
MANY_ROWS = 12
"""... which is looked at over the last two hours."""
HEADROOM_SECONDS = 2400.0
"""What is lost was lost all this time, so no more can be than was ever free of requests in it."""
CHANGED = "request sizes or sharing changed, which may explain it"


class Rows(NamedTuple):
    """Evidence rows, column by column (those of TREND_COLUMNS), oldest first."""

    end: list[float]
    scrapes: list[float]
    used: list[float]
    running: list[float]
    prompt_load: list[float]
    output_load: list[float]
    finished_load: list[float]
    saturated: list[float]
    headroom: list[float]
    hits: list[float]
    queries: list[float]


def objection(
    kind: str,
    index: int,
    rise: float,
    own: float,
    rows: Rows,
    pool: int,
    settings: JudgeSettings,
) -> str | None:
    full = rows.saturated[-1] >= FULL_SHARE
    least = settings.trend_full_ratio if full else settings.trend_ratio
    if rise <= max(least * pool, settings.trend_least_blocks):
        return "too small to tell from noise"
    headroom = min(_recent(rows.headroom, rows.end))
    if rise >= headroom + settings.trend_ratio * pool:
        return f"only {headroom:.0f} blocks were without a request at some moment"
    first = index + 1 if kind == "step" else (index + len(rows.end)) // 2
    before = Mix.of(rows, 0, index + 1 if index else max(1, len(rows.end) // 4))
    after = Mix.of(rows, first, len(rows.end))
    shared = abs(after.hit_ratio - before.hit_ratio) >= settings.trend_hit_change
    share = settings.trend_shared_share if shared else settings.trend_mix_share
    if rise <= share * after.change_of_mix(before):
        return CHANGED
    if full and rise > GREAT_SHARE * pool and _ran_on(rows, index, rise / pool):
        return "about as many requests run in the full cache as before"
    if rise <= settings.trend_load_share / own * after.change_of_load(before):
        return "load changed at the same time, which may explain it"
    return None


def _ran_on(rows: Rows, index: int, share: float) -> bool:
    """Whether requests in the full cache became fewer by less than half of what is said lost."""
    running = [
        [r for r, full in zip(rows.running[part], rows.saturated[part], strict=True)
         if full >= FULL_SHARE]
        for part in (slice(0, index + 1), slice(-MANY_ROWS, None))
    ]  # fmt: skip
    if min(map(len, running)) < MANY_ROWS // 2:
        return False
    before, after = (sum(some) / len(some) for some in running)
    return after > before * (1.0 - share / 2)


def _recent(values: list[float], end: list[float]) -> list[float]:
    """The values of the last HEADROOM_SECONDS, at least of the newest row."""
    return [v for v, time in zip(values, end, strict=True) if time > end[-1] - HEADROOM_SECONDS]


class Mix(NamedTuple):
    """What requests were like over some rows: running, blocks of prompt and output each, hits."""

    running: float
    prompt: float
    output: float
    hit_ratio: float

    @classmethod
    def of(cls, rows: Rows, first: int, last: int) -> Mix:
        """Mean over rows *first* to *last* (excluded)."""
        part = slice(first, last)
        running = sum(rows.running[part])
        hits = [(h, q) for h, q in zip(rows.hits[part], rows.queries[part], strict=True) if q > 0]
        asked = sum(q for _, q in hits)
        return cls(
            running / max(1, last - first),
            sum(rows.prompt_load[part]) / running if running else 0.0,
            sum(rows.output_load[part]) / running if running else 0.0,
            sum(h for h, _ in hits) / asked if asked else 0.0,
        )

    def change_of_mix(self, before: Mix) -> float:
        """Blocks that other sizes and less sharing can account for."""
        sizes = abs(self.prompt - before.prompt) + PROMPT_AND_OUTPUT * abs(
            self.output - before.output
        )
        shared = 0.7 * abs(self.hit_ratio - before.hit_ratio) * self.prompt
        return self.running * (sizes + shared)

    def change_of_load(self, before: Mix) -> float:
        """Blocks that more running requests account for."""
        each = self.prompt + PROMPT_AND_OUTPUT * self.output
        return abs(self.running - before.running) * each
