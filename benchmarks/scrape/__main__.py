"""What one scrape costs us, step by step; with --fleets also peers, our port, memory, a real vLLM.

python -m benchmarks.scrape                                        two minutes, prints
python -m benchmarks.scrape --fleets docs [--vllm URL --pid PID]   18 minutes, writes a document
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.scrape.pages import filtered, pages, samples
from benchmarks.scrape.steps import Steps, measure

TARGETS = (10, 100, 500, 1000)
FLEET_PAGE = "real-size names, 1 engine"
HEADER = (
    f"{'page':42} {'bytes':>8} {'samples':>7} {'fetch':>8} {'anew':>8} {'parse':>8} {'whole':>8}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=Path, metavar="FOLDER", help="write performance.md there")
    parser.add_argument("--vllm", metavar="URL", help="a running vLLM to ask by both routes")
    parser.add_argument("--pid", type=int, help="its API process")
    arguments = parser.parse_args()
    measured = steps()
    if arguments.fleets is not None:
        # Imported here: the short run needs neither the peers nor matplotlib.
        from benchmarks.scrape import document

        vllm = (arguments.vllm, arguments.pid) if arguments.vllm and arguments.pid else None
        document.write(arguments.fleets, measured, TARGETS, pages()[FLEET_PAGE], vllm)


def steps() -> dict[str, tuple[int, int, Steps]]:
    print("CPU per scrape in ms, best of the rounds: fetch over a kept connection and anew, filter")
    print("and parse alone, and the whole scrape over a kept connection: fetch to verdict")
    print(HEADER)
    measured = {}
    for name, page in _pages():
        one = measure(page, page)
        measured[name] = (len(page), samples(page), one)
        print(
            f"{name:42} {len(page):8,} {samples(page):7,} {one.fetch:8.3f} {one.fetch_anew:8.3f}"
            f" {one.filter_and_parse:8.3f} {one.whole:8.3f}"
        )
        sys.stdout.flush()
    return measured


def _pages() -> Iterator[tuple[str, bytes]]:
    for name, page in pages().items():
        yield name, page
        yield f"{name}, filtered route", filtered(page)


if __name__ == "__main__":
    main()
