"""The page a person finds at our address: who is in trouble, why, since when, and what to do.

Plain HTML and SVG made on the server; everything that came from outside is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files

from kvcache_exporter import __version__
from kvcache_exporter.model import EngineStatus, Finding, GpuReading, Snapshot, State, TargetStatus
from kvcache_exporter.status.chart import chart

SHOWN_ENGINES = 200
"""The most troubled come first; a page of thousands would help nobody."""
_TROUBLE = (
    State.LEAK,
    State.STALLED,
    State.PREEMPTION_STORM,
    State.STALE,
    State.UNTRUSTED,
    State.LEAK_SUSPECT,
    State.SATURATED,
    State.HELD_IDLE,
    State.NO_DATA,
    State.PAUSED,
    State.UNKNOWN,
    State.OK,
)


def status_page(snapshot: Snapshot) -> str:
    """Return the whole page."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    engines = sorted(snapshot.engines, key=_rank)
    cards = "".join(_card(engine, gpus, snapshot.time) for engine in engines[:SHOWN_ENGINES])
    more = len(engines) - SHOWN_ENGINES
    if more > 0:
        cards += f"<p>and {more} more, none in more trouble than these</p>"
    style = files(__package__).joinpath("status.css").read_text()
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        "<meta http-equiv=refresh content=30>"
        f"<title>{_title(engines)}</title><style>{style}</style></head><body>"
        f"<header><h1>KV caches</h1><p>{_summary(engines)}</p></header>"
        f"<main>{cards or '<p>No engine has been seen yet.</p>'}</main>"
        f"{_problems(snapshot)}"
        f"<footer>kvcache-exporter {__version__} · <a href=/metrics>metrics</a> · "
        "<a href=/api/v1/engines>JSON</a></footer></body></html>"
    )


def _rank(one: EngineStatus) -> tuple[int, bool, str, str]:
    judgement = one.judgement
    quiet = not judgement.findings and not judgement.leak_active
    return _TROUBLE.index(judgement.state), quiet, one.target, one.engine


def _counts(engines: Iterable[EngineStatus]) -> dict[State, int]:
    counts = dict.fromkeys(_TROUBLE, 0)
    for one in engines:
        counts[one.judgement.state] += 1
    return {state: count for state, count in counts.items() if count}


def _title(engines: list[EngineStatus]) -> str:
    first = next(iter(_counts(engines).items()), None)
    return f"{first[1]} {first[0]}" if first else "kvcache-exporter"


def _summary(engines: list[EngineStatus]) -> str:
    states = (f"<b class='s {s}'>{count} {s}</b>" for s, count in _counts(engines).items())
    return " ".join(states) or "nothing to judge yet"


def _card(one: EngineStatus, gpus: dict[str, GpuReading], now: float) -> str:
    reading, judgement = one.reading, one.judgement
    model = reading.model_name if reading and reading.model_name else "unknown model"
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in judgement.because)
    reasons += "".join(map(_finding, judgement.findings))
    return (
        f"<section><h2><b class='s {judgement.state}'>{judgement.state}</b> "
        f"{escape(one.target)} <small>engine {escape(one.engine)} · {escape(model)} · "
        f"for {_ago(now - judgement.since)}</small></h2>"
        f"<div class=row>{_blocks(one)}{_gpu(one, gpus)}<ul>{reasons}</ul></div></section>"
    )


def _blocks(one: EngineStatus) -> str:
    reading, judgement = one.reading, one.judgement
    if reading is None or reading.pool_blocks is None or reading.used_blocks is None:
        return "<figure><figcaption>blocks not known</figcaption></figure>"
    lines = [
        ("used", lambda p: p.used_blocks),
        ("floor", lambda p: p.idle_floor_blocks),
        ("orphaned", lambda p: p.orphaned_blocks),
    ]
    drawn = chart(list(one.trace.points()), lines, reading.pool_blocks)
    parts = [f"<i class=used></i>{reading.used_blocks:,} of {reading.pool_blocks:,} blocks used"]
    if judgement.idle_floor_blocks is not None:
        parts.append(f"<i class=floor></i>idle floor {judgement.idle_floor_blocks:,}")
    if judgement.orphaned_blocks:
        parts.append(f"<i class=orphaned></i>orphaned {judgement.orphaned_blocks:,}")
    return f"<figure>{drawn}<figcaption>{', '.join(parts)}</figcaption></figure>"


def _gpu(one: EngineStatus, gpus: dict[str, GpuReading]) -> str:
    mine = [gpus[uuid] for uuid in one.gpu_uuids if uuid in gpus]
    used = sum(gpu.used_bytes or 0 for gpu in mine)
    total = sum(gpu.total_bytes or 0 for gpu in mine)
    if not mine or not total:
        return ""
    drawn = chart(list(one.trace.points()), [("gpu", lambda p: p.gpu_used_bytes)], total)
    text = f"<i class=gpu></i>driver: {used / 2**30:.1f} of {total / 2**30:.1f} GiB"
    return f"<figure>{drawn}<figcaption>{text}</figcaption></figure>"


def _finding(one: Finding) -> str:
    return f"<li><b>{escape(one.kind.replace('_', ' '))}</b>: {escape(one.because)}</li>"


def _problems(snapshot: Snapshot) -> str:
    lines = [line for target in snapshot.targets for line in _target(target)]
    lines += [f"<li>{escape(problem.text)}</li>" for problem in snapshot.problems]
    return f"<aside><h2>Needs attention</h2><ul>{''.join(lines)}</ul></aside>" if lines else ""


def _target(one: TargetStatus) -> Iterator[str]:
    for problem in one.problems:
        yield f"<li><b>{escape(one.target.name)}</b>: {escape(problem.text)}</li>"


def _ago(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
