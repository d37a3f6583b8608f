"""Measure at each pool size, print the table and put it into docs/audit.md."""

from __future__ import annotations

import platform
from pathlib import Path

from benchmarks.audit.measure import POOLS, measure, table

DOCUMENT = Path(__file__).parents[2] / "docs" / "audit.md"
BEGIN, END = "<!-- printed by: python -m benchmarks.audit -->\n", "<!-- end -->\n"


def machine() -> str:
    """Name the processor and the Python that the numbers are of."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line for line in info.splitlines() if line.startswith("model name")), ":unknown")
    return f"{model.partition(':')[2].strip()}, Python {platform.python_version()}."


def main() -> None:
    """Measure, print, write."""
    text = f"{table([measure(blocks) for blocks in POOLS])}\n{machine()}\n"
    print(text)
    head, found, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    if not found:
        raise SystemExit(f"{DOCUMENT} lacks the line {BEGIN!r}")
    DOCUMENT.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


main()
