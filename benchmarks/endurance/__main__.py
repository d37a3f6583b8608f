"""Does the exporter leak while everything around it comes, goes and misbehaves?

python -m benchmarks.endurance --virtual-hours 72 [--write]   minutes; into docs/performance.md
python -m benchmarks.endurance --real-hours 8                 the real process, in real time

Ends with 1 if anything grows or a promise is broken.
"""

from __future__ import annotations

import argparse
import sys
from textwrap import fill

from benchmarks import document
from benchmarks.endurance import measure, real, virtual
from benchmarks.endurance.servers import NAMES

COMMAND = "python -m benchmarks.endurance --virtual-hours 72 --write"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--virtual-hours", type=float, metavar="N")
    parser.add_argument("--real-hours", type=float, metavar="N")
    parser.add_argument("--targets", type=int, default=12, help="of the virtual fleet")
    parser.add_argument("--interval", type=float, default=10.0, help="virtual seconds")
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    arguments = parser.parse_args()
    if not arguments.virtual_hours and not arguments.real_hours:
        parser.error("say how long: --virtual-hours or --real-hours")
    good = True
    if arguments.virtual_hours:
        fleet = arguments.targets, arguments.interval
        looks, happened = virtual.soak(arguments.virtual_hours, *fleet)
        text = _virtual_text(*fleet, looks, happened)
        print(text)
        if arguments.write:
            document.put("performance.md", COMMAND, text)
        good = not measure.leaks(looks)
    if arguments.real_hours:
        good = _real(arguments.real_hours) and good
    return 0 if good else 1


def _virtual_text(
    targets: int, interval: float, looks: list[measure.Look], happened: list[str]
) -> str:
    text = (
        f"{targets} engines, a scrape each {interval:g} s, {looks[-1].hours:g} hours on a virtual"
        f" clock. Every hour brings the next of: {', '.join(happened)}; and a meeting with"
        f" {len(NAMES)} hostile servers over real sockets: {', '.join(NAMES)}."
    )
    return f"{fill(text, 100, break_on_hyphens=False)}\n\n{measure.report(looks)}"


def _real(hours: float) -> bool:
    lived = real.soak(hours * 3600.0)
    print(lived)
    print(measure.report(lived.looks))
    for promise, kept in lived.verdicts.items():
        print(f"{'kept  ' if kept else 'BROKEN'} {promise}")
    return all(lived.verdicts.values()) and not measure.leaks(lived.looks)


if __name__ == "__main__":
    sys.exit(main())
