"""What a rehearsal found: text for people, one JSON object for machines, one page to keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from statistics import median

from kvcache_exporter.soak.judge import Rehearsal, Ruling, exit_code
from kvcache_exporter.soak.watch import Moment
from kvcache_exporter.status.chart import chart
from kvcache_exporter.trace import Point

_WORDS = ("GO", "ONE OF THREE IS BAD", "NO-GO")
_MARKS = {True: "ok", False: "BAD", None: "?"}
_MOST_POINTS = 400


def headline(rulings: Sequence[Ruling]) -> str:
    """Sum the judgements up in a word or two."""
    if all(ruling.passed is None for ruling in rulings):
        return "NOTHING COULD BE JUDGED"
    return _WORDS[exit_code(rulings)]


def to_text(seen: Rehearsal, rulings: Sequence[Ruling]) -> str:
    """Return a few lines."""
    lines = [f"{headline(rulings)}{' (interrupted)' if seen.interrupted else ''}"]
    lines += [f"  {_MARKS[r.passed]:3}  {r.question}: {r.because}" for r in rulings]
    return "\n".join([*lines, f"  {_counts(seen)}"])


def to_json(seen: Rehearsal, rulings: Sequence[Ruling]) -> str:
    """Return one JSON object."""
    document = {
        "verdict": headline(rulings).lower().replace(" ", "_"),
        "exit_code": exit_code(rulings),
        "interrupted": seen.interrupted,
        "rulings": [asdict(ruling) for ruling in rulings],
        "requests": len(seen.outcomes),
        "failed": sum(not one.ok for one in seen.outcomes),
        "cancelled": sum(one.cancelled for one in seen.outcomes),
        "retried": sum(one.retries > 0 for one in seen.outcomes),
        "idle_used_blocks": seen.idle_used_blocks,
        "settled_used_blocks": seen.settled_used_blocks,
        "states": {engine: judgement.state for engine, judgement in seen.judgements},
    }
    return json.dumps(document, indent=2)


def to_html(seen: Rehearsal, rulings: Sequence[Ruling], title: str) -> str:
    """Return a page that needs nothing else: no script, no external resource."""
    rows = "".join(
        f"<tr><td>{_MARKS[r.passed]}<td>{escape(r.question)}<td>{escape(r.because)}</tr>"
        for r in rulings
    )
    style = files("kvcache_exporter.status").joinpath("status.css").read_text()
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>Rehearsal: {headline(rulings)}</title><style>{style}"
        "figure{width:100%;max-width:52rem}td{padding:.2rem .8rem .2rem 0;vertical-align:top}"
        f"</style></head><body><h1>Rehearsal of {escape(title)}: {headline(rulings)}</h1>"
        f"<table>{rows}</table><p>{escape(_counts(seen))}</p>{_charts(seen.moments)}"
        "</body></html>"
    )


def _counts(seen: Rehearsal) -> str:
    good = [one for one in seen.outcomes if one.ok and not one.cancelled]
    text = (
        f"{len(seen.outcomes):,} requests, {sum(not o.ok for o in seen.outcomes):,} failed, "
        f"{sum(o.cancelled for o in seen.outcomes):,} hung up on purpose"
    )
    if good:
        text += f", median {median(one.latency_seconds for one in good):.2f} s"
    firsts = [o.first_token_seconds for o in good if o.first_token_seconds is not None]
    return text + (f", first token after {median(firsts):.2f} s" if firsts else "")


def _charts(moments: Sequence[Moment]) -> str:
    step = max(1, len(moments) // _MOST_POINTS)
    thin = moments[::step]
    blocks = [Point(m.time, m.used_blocks, None, None, None) for m in thin]
    memory = [Point(m.time, None, None, None, m.gpu_used_bytes) for m in thin]
    pool = max((m.pool_blocks or 0 for m in moments), default=0)
    gpu = max((m.gpu_used_bytes or 0 for m in moments), default=0)
    parts = (
        (chart(blocks, [("used", lambda p: p.used_blocks)], pool), "blocks in use"),
        (chart(memory, [("gpu", lambda p: p.gpu_used_bytes)], gpu * 1.1), "GPU memory, driver"),
    )
    return "".join(
        f"<figure>{svg}<figcaption>{name}</figcaption></figure>" for svg, name in parts if svg
    )
