"""The demo's story as the past of a Prometheus, so that dashboards open on a filled picture.

`python -m grafana.story OUT.om` writes the last hours in OpenMetrics; `promtool tsdb
create-blocks-from openmetrics OUT.om DIR` makes Prometheus blocks of it. With --listen the fleet
then lives on at the pace of the clock, below a real exporter page.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TextIO

import click

from kvcache_exporter.demo import Stage, stage
from kvcache_exporter.expose import render
from kvcache_exporter.serve import pages
from kvcache_exporter.simulate.cast import STORY_SECONDS, demo_cast
from kvcache_exporter.simulate.fleet import Fleet
from kvcache_exporter.web import Latest, Server, pages_of

LIVE_SECONDS = 15.0
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


def stamped(moment: float, page: str, scraped_from: str) -> str:
    """Write each sample of a page as Prometheus would have stored it."""
    lines = []
    for line in page.splitlines():
        if match := SAMPLE.match(line):
            name, labels, value = match.groups()
            inner = ",".join(filter(None, (scraped_from, labels)))
            lines.append(f"{name}{{{inner}}} {value} {moment:.3f}\n")
    return "".join(lines)


async def tell(running: Stage, out: TextIO, keep_seconds: float, scraped_from: str) -> None:
    """Let the story pass up to now, and write its last part."""
    start = STORY_SECONDS - keep_seconds
    while running.fleet.time < time.time():
        snapshot = await running.cycle()
        if running.fleet.clock >= start:
            out.write(stamped(snapshot.time, render(snapshot).decode(), scraped_from))
    out.write("# EOF\n")


async def live(running: Stage, address: str) -> None:
    """Serve the exporter's page from now on, one virtual second a second."""
    running.interval_seconds = LIVE_SECONDS
    latest = Latest()
    server = Server(address, pages_of(latest))
    server.start()
    while True:
        latest.pages = pages(await running.cycle())
        await asyncio.sleep(max(0.0, running.fleet.time - time.time()))


async def play(path: Path, keep_seconds: float, scraped_from: str, address: str | None) -> None:
    """Tell the past into *path*, then live on if there is an address to serve at."""
    fleet = Fleet(demo_cast(), start_time=time.time() - STORY_SECONDS)
    async with stage(fleet) as running:
        with path.open("w") as out:
            await tell(running, out, keep_seconds, scraped_from)
        if address:
            await live(running, address)


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--hours", default=8.0, show_default=True, help="How much of the past to write.")
@click.option("--job", default="kvcache-exporter", show_default=True)
@click.option("--instance", default="127.0.0.1:10158", show_default=True)
@click.option("--listen", help="HOST:PORT to serve the page at afterwards, until interrupted.")
def main(out: Path, hours: float, job: str, instance: str, listen: str | None) -> None:
    """Write the demo's story as the past of a Prometheus."""
    scraped_from = f'job="{job}",instance="{instance}"'
    asyncio.run(play(out, hours * 3600, scraped_from, listen))


if __name__ == "__main__":
    main()
