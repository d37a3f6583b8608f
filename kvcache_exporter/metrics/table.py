"""The catalogue as a table for people."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_exporter.metrics import audits, engines, exporter, gpus, sources, targets

_KINDS = (
    (targets, ("target",)),
    (engines, ("target", "engine")),
    (audits, ("target", "engine")),
    (gpus, ("uuid",)),
    (sources, ("source",)),
    (exporter, ()),
)


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield (name, labels, meaning) of every family."""
    for module, identity in _KINDS:
        for one in module.METRICS:
            yield one.name, ", ".join((*identity, *one.labels)), one.help


def text_table() -> str:
    """Return aligned columns."""
    table = list(rows())
    width = max(len(name) for name, _, _ in table)
    return "\n".join(f"{name:{width}}  [{labels}]  {meaning}" for name, labels, meaning in table)


def markdown_table() -> str:
    """Return a Markdown table."""
    head = "| metric | labels | meaning |\n|---|---|---|\n"
    return head + "\n".join(f"| `{n}` | {labels} | {meaning} |" for n, labels, meaning in rows())
