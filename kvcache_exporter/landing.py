"""The page a person finds when typing the exporter's address: what is known, and where to go."""

from __future__ import annotations

from html import escape

from kvcache_exporter import __version__
from kvcache_exporter.model import EngineStatus, Snapshot, TargetStatus

_STYLE = (
    "body{font:16px system-ui;margin:2rem auto;max-width:70rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #8884;vertical-align:top}:root{color-scheme:light dark}"
)


def landing_page(snapshot: Snapshot) -> str:
    """Return plain HTML without any external resource or script."""
    engines = "".join(map(_engine, snapshot.engines))
    targets = "".join(map(_problems, snapshot.targets))
    beside = "".join(f"<li>{escape(problem.text)}</li>" for problem in snapshot.problems)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>kvcache-exporter</title>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<style>{_STYLE}</style></head><body><h1>kvcache-exporter {__version__}</h1>"
        "<p><a href=/metrics>Metrics</a> · <a href=/-/healthy>Health</a> · "
        "<a href=/-/ready>Readiness</a></p>"
        "<h2>Engines</h2><table><tr><th>Engine<th>State<th>Blocks used<th>Because</tr>"
        f"{engines or '<tr><td colspan=4>none yet</td></tr>'}</table>"
        f"<h2>Needs attention</h2><ul>{targets + beside or '<li>nothing</li>'}</ul></body></html>"
    )


def _engine(status: EngineStatus) -> str:
    reading, judgement = status.reading, status.judgement
    blocks = "not known"
    if reading is not None and reading.used_blocks is not None:
        blocks = f"{reading.used_blocks} of {reading.pool_blocks}"
    name = f"{status.target} / {status.engine}"
    cells = (name, judgement.state.value, blocks, "; ".join(judgement.because))
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _problems(status: TargetStatus) -> str:
    name = escape(status.target.name)
    return "".join(f"<li><b>{name}</b>: {escape(p.text)}</li>" for p in status.problems)
