"""vLLM's own log: the lines it prints every ten seconds, V0 and V1, whatever surrounds them.

Lines wrapped by a terminal or a log collector are put together again; fields may come in any
order, or not at all. Throughputs are summed up to the counters they were taken from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from kvcache_exporter.analyze.frame import Frame, InputError
from kvcache_exporter.model import Sample

PERIOD_SECONDS = 10.0
"""vLLM's VLLM_LOG_STATS_INTERVAL, for lines without a time stamp."""
_START = re.compile(
    r"(?:INFO|WARNING|ERROR|DEBUG)\s+\d\d-\d\d \d\d:\d\d:\d\d|Engine \d+: |\d{4}-\d\d-\d\d[T ]\d\d:"
    r"|Avg prompt throughput:"
)
"""What a new record contains near its beginning; anything else continues the one before."""
_STAMPS = (
    re.compile(r"(?P<Y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)[T ](?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"),
    re.compile(r"(?P<m>\d\d)-(?P<d>\d\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"),
)
_HEAD_CHARACTERS = 160
_NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"
_FIELDS = {
    "running": re.compile(rf"Running:{_NUMBER}reqs"),
    "waiting": re.compile(rf"(?:Waiting|Pending):{_NUMBER}reqs"),
    "swapped": re.compile(rf"Swapped:{_NUMBER}reqs"),
    "deferred": re.compile(rf"Deferred:{_NUMBER}reqs"),
    # Builds for other devices name theirs ("CPU KV cache usage"); V0 names both, and there the
    # CPU's is its swap space.
    "usage": re.compile(rf"(?:GPU|^(?!.*GPUKVcache).*[A-Z])KVcacheusage:{_NUMBER}%"),
    "hits": re.compile(rf"(?<!External)(?<!MM)[Pp]refixcachehitrate:(?:GPU:)?{_NUMBER}%"),
    "prompt": re.compile(rf"Avgpromptthroughput:{_NUMBER}tokens/s"),
    "generation": re.compile(rf"Avggenerationthroughput:{_NUMBER}tokens/s"),
    "preemptions": re.compile(rf"Preemptions:{_NUMBER}(?!\d)"),
}
"""Searched in a record whose white space was taken out, so that no wrap can split a field."""
_ENGINE = re.compile(r"Engine(\d+):")
_BLOCKS = re.compile(r"#(?:GPU|CUDA|\w+)blocks:(\d+),#CPUblocks")


@dataclass(slots=True)
class _State:
    """Counters of one engine, summed up so far."""

    time: float
    totals: dict[str, float] = field(default_factory=dict)


def frames(path: Path, now: datetime | None = None) -> Iterator[Frame]:
    """Yield a frame for each statistics line, oldest first.

    *now* decides the year of stamps that have none. Raise ``InputError`` when the file has no
    statistics line at all.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    records = list(_dated(_records(lines), now or datetime.now(UTC)))
    records.sort(key=lambda one: one[0])
    blocks = next((m[1] for _, text in records if (m := _BLOCKS.search(text))), None)
    found = [(time, text) for time, text in records if _FIELDS["running"].search(text)]
    if not found:
        raise InputError(
            f"{path}: no statistics line of vLLM in it (such as 'Running: 1 reqs, Waiting: 0 reqs, "
            "GPU KV cache usage: 0.1%'); start vLLM without --disable-log-stats"
        )
    states: dict[str, _State] = {}
    for time, text in found:
        yield _frame(path.stem, time, text, states, blocks)


def _records(lines: Iterable[str]) -> Iterator[str]:
    record = ""
    for line in lines:
        if _START.search(line[:_HEAD_CHARACTERS]) and not _continues(record, line):
            if record:
                yield record
            record = line
        else:
            record += line
    if record:
        yield record


def _continues(record: str, line: str) -> bool:
    """Whether a line without a stamp only completes the stamped beginning before it."""
    stamped = any(stamp.search(line[:_HEAD_CHARACTERS]) for stamp in _STAMPS)
    begun = any(stamp.search(record[:_HEAD_CHARACTERS]) for stamp in _STAMPS)
    return begun and not stamped and "Running:" not in record.replace(" ", "")


def _dated(records: Iterable[str], now: datetime) -> Iterator[tuple[float, str]]:
    """Give times in seconds and texts without white space; unstamped records follow 10 s apart."""
    last: float | None = None
    for record in records:
        text = re.sub(r"\s+", "", record)
        time = _stamp(record[:_HEAD_CHARACTERS], now)
        if time is None:
            counts = _FIELDS["running"].search(text) is not None
            time = 0.0 if last is None else last + PERIOD_SECONDS * counts
        last = time
        yield time, text


def _stamp(head: str, now: datetime) -> float | None:
    for stamp in _STAMPS:
        if (match := stamp.search(head)) is None:
            continue
        parts = {key: int(value) for key, value in match.groupdict().items()}
        year = parts.pop("Y", now.year)
        try:
            moment = datetime(
                year, parts["m"], parts["d"], parts["H"], parts["M"], parts["S"], tzinfo=UTC
            )
        except ValueError:
            continue
        if "Y" not in match.groupdict() and moment > now + timedelta(days=2):
            moment = moment.replace(year=year - 1, day=min(moment.day, 28))
        return moment.timestamp()
    return None


def _frame(
    target: str, time: float, text: str, states: dict[str, _State], blocks: str | None
) -> Frame:
    engine = str(int(match[1])) if (match := _ENGINE.search(text)) else "0"
    state = states.setdefault(engine, _State(time - PERIOD_SECONDS))
    values = {
        key: float(match[1]) for key, pattern in _FIELDS.items() if (match := pattern.search(text))
    }
    samples = list(_samples(values, engine, state, max(0.0, time - state.time)))
    state.time = time
    if blocks is not None:
        labels = MappingProxyType({"engine": engine, "num_gpu_blocks": blocks})
        samples.append(Sample("vllm:cache_config_info", labels, 1.0))
    return Frame(time, target, samples)


def _samples(
    values: dict[str, float], engine: str, state: _State, seconds: float
) -> Iterator[Sample]:
    labels = MappingProxyType({"engine": engine})
    v0 = "swapped" in values
    gauges = {
        "running": "num_requests_running",
        "waiting": "num_requests_waiting",
        "swapped": "num_requests_swapped",
        "usage": "gpu_cache_usage_perc" if v0 else "kv_cache_usage_perc",
        "hits": "gpu_prefix_cache_hit_rate",
    }
    for key, name in gauges.items():
        if key in values:
            percent = 100.0 if key in ("usage", "hits") else 1.0
            yield Sample(f"vllm:{name}", labels, round(values[key] / percent, 6))
    if "deferred" in values:
        by_reason = MappingProxyType({"engine": engine, "reason": "deferred"})
        yield Sample("vllm:num_requests_waiting_by_reason", by_reason, values["deferred"])
    counters = {"prompt": seconds, "generation": seconds, "preemptions": 1.0}
    for key, factor in counters.items():
        if key in values or key in state.totals:
            total = state.totals.get(key, 0.0) + values.get(key, 0.0) * factor
            state.totals[key] = total
            name = "num_preemptions_total" if key == "preemptions" else f"{key}_tokens_total"
            yield Sample(f"vllm:{name}", labels, total)
