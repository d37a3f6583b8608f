"""A recipe for a long table: what an engine shows while somebody tells its story.

Each ``during`` appends scrapes. Gauges are numbers or functions of the seconds since the call;
counters are rates a second; ``add`` lets a counter jump at once.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

GAUGES = ("running", "waiting", "used")
COUNTERS = {
    "prompt": "prompt_tokens_total",
    "generation": "generation_tokens_total",
    "finished_prompt": "request_prompt_tokens_sum",
    "finished_generation": "request_generation_tokens_sum",
    "done": "request_prompt_tokens_count",
    "first": "time_to_first_token_seconds_count",
    "hits": "prefix_cache_hits_total",
    "queries": "prefix_cache_queries_total",
    "preemptions": "num_preemptions_total",
    "http": "http_requests_total",
    "transfer_errors": "nixl_num_failed_transfers_total",
}
Value = float | Callable[[float], float]


class Story:
    """One engine; ``constants`` go into every row (connector=1, model_name="x", ...)."""

    def __init__(self, pool: int = 8192, interval: float = 10.0, **constants: Any) -> None:
        self.pool, self.interval, self.constants = pool, interval, constants
        self.time = 1_790_000_000.0
        self.gauges: dict[str, Value] = dict.fromkeys(GAUGES, 0.0)
        self.totals: dict[str, float] = {}
        self.rows: list[dict[str, Any]] = []
        self.random = random.Random(1)

    def during(self, seconds: float, **values: Any) -> Story:
        """Live on for so long; gauges keep their last value, counters stand unless named here."""
        rates = {name: value for name, value in values.items() if name in COUNTERS}
        extra = {k: v for k, v in values.items() if k not in COUNTERS and k not in GAUGES}
        self.gauges |= {name: values[name] for name in GAUGES if name in values}
        begin = self.time
        while self.time < begin + seconds:
            for name, rate in rates.items():
                grown = _at(rate, self.time - begin) * self.interval
                self.totals[name] = self.totals.get(name, 0.0) + grown
            self._row(self.time - begin, extra)
            self.time += self.interval
        return self

    def busy(self, seconds: float, leaked: int = 0, running: int = 12, **rates: Any) -> Story:
        """Serve about a request a second; each holds about 40 blocks, beside what was lost."""
        level = running

        def count(_: float) -> float:
            nonlocal level
            level = max(1, min(2 * running, level + self.random.choice((-2, -1, 0, 1, 2))))
            return level

        def used(_: float) -> float:
            return leaked + level * 40 + self.random.randint(-30, 30)

        served: dict[str, Any] = {"prompt": 600, "generation": 250, "done": 1, "first": 1}
        served |= {"finished_prompt": 600, "finished_generation": 250, "http": 1}
        return self.during(seconds, running=count, used=used, waiting=0, **served | rates)

    def idle(self, seconds: float, used: float = 0, **values: Any) -> Story:
        """Nothing runs, nothing waits."""
        return self.during(seconds, running=0, waiting=0, used=used, **values)

    def add(self, **jumps: float) -> Story:
        """Let counters jump before the next scrape."""
        for name, jump in jumps.items():
            self.totals[name] = self.totals.get(name, 0.0) + jump
        return self

    def forget(self) -> Story:
        """Restart: every counter begins anew."""
        self.totals = dict.fromkeys(self.totals, 0.0)
        return self

    def write(self, path: Path, *others: Story) -> Path:
        """Write the table; rows of other stories are merged in by time."""
        rows = [row for story in (self, *others) for row in story.rows]
        header = list(dict.fromkeys(name for row in rows for name in row))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, header)
            writer.writeheader()
            writer.writerows(sorted(rows, key=lambda row: row["time"]))
        return path

    def _row(self, seconds: float, extra: Mapping[str, Any]) -> None:
        running, waiting, used = (_at(self.gauges[name], seconds) for name in GAUGES)
        row: dict[str, Any] = {"time": self.time, "running": running, "waiting": waiting}
        row |= {"usage": round(used) / self.pool, "num_gpu_blocks": self.pool + 1, "block_size": 16}
        row |= {COUNTERS[name]: round(total) for name, total in self.totals.items()}
        self.rows.append(row | self.constants | {k: _at(v, seconds) for k, v in extra.items()})


def _at(value: Any, seconds: float) -> Any:
    return value(seconds) if callable(value) else value
