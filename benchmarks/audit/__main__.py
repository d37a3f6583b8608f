"""Measure at each pool size, print the table and put it into docs/audit.md."""

from __future__ import annotations

from pathlib import Path

from benchmarks.audit.measure import POOLS, measure, table

DOCUMENT = Path(__file__).parents[2] / "docs" / "audit.md"
BEGIN, END = "<!-- printed by: python -m benchmarks.audit -->\n", "<!-- end -->\n"


def main() -> None:
    """Measure, print, write."""
    text = table([measure(blocks) for blocks in POOLS])
    print(text)
    head, found, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    if not found:
        raise SystemExit(f"{DOCUMENT} lacks the line {BEGIN!r}")
    DOCUMENT.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


main()
