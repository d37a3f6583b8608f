"""Print what one scrape costs us, step by step; --peers also measures whole fleets and peers."""

from __future__ import annotations

from benchmarks.scrape.pages import filtered, pages, samples
from benchmarks.scrape.steps import Steps, measure

HEADER = f"{'page':34} {'bytes':>8} {'samples':>7} {'fetch':>8} {'parse':>8} {'whole scrape':>13}"


def main() -> None:
    print("CPU per scrape in ms, kept connections, median of rounds; parse = filter + parse")
    print(HEADER)
    for name, page in pages().items():
        cut = filtered(page)
        print(row(name, page, measure(page, cut)))
        print(row(f"{name}, filtered route", cut, measure(cut, cut)))


def row(name: str, page: bytes, steps: Steps) -> str:
    return (
        f"{name:34} {len(page):8,} {samples(page):7,} {steps.fetch:8.3f}"
        f" {steps.filter_and_parse:8.3f} {steps.whole:13.3f}"
    )


if __name__ == "__main__":
    main()
