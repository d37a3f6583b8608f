"""Measure at each pool size, print the table and put it into docs/audit.md."""

from __future__ import annotations

from benchmarks.audit.measure import POOLS, measure, table
from benchmarks.document import put
from benchmarks.machine import machine


def main() -> None:
    """Measure, print, write."""
    text = f"{table([measure(blocks) for blocks in POOLS])}\n{machine()}\n"
    print(text)
    put("audit.md", "python -m benchmarks.audit", text)


main()
