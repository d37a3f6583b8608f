"""Watch a simulated fleet through the exporter: no GPU, no vLLM, no network."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

import click

from kvcache_exporter.cli._common import fail
from kvcache_exporter.cli._demo_table import final_table, live_table, verdict
from kvcache_exporter.demo import Stage, stage
from kvcache_exporter.model import Snapshot
from kvcache_exporter.serve import pages
from kvcache_exporter.simulate.cast import STORY_SECONDS, demo_cast
from kvcache_exporter.simulate.fleet import Fleet
from kvcache_exporter.urls import DEFAULT_PORT
from kvcache_exporter.web import Latest, Server, pages_of

REFRESH_SECONDS = 0.5
KEEP_PACE_SECONDS = 1.0


@click.command(
    epilog="Example: kvcache-exporter demo, and meanwhile curl http://127.0.0.1:10158/metrics"
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Real time after which the demo ends, wherever the story is by then.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Where /metrics and / are served meanwhile. [default: {DEFAULT_PORT}, or a free one]",
)
@click.option(
    "--keep/--once", default=False, help="Go on serving after the story, until interrupted."
)
def command(seconds: float, port: int | None, keep: bool) -> None:
    """Watch a simulated fleet through the exporter: no GPU, no vLLM, no network.

    More than a day in the life of simulated vLLM servers passes within a minute. The exporter
    scrapes them over HTTP as it would real ones, and judges each. One server has been there for
    most of the day when the others are deployed.
    """
    latest = Latest()
    server = _listen(latest, port)
    fleet = Fleet(demo_cast(), start_time=time.time() - STORY_SECONDS)
    show = Show(fleet, latest, sys.stdout.isatty())
    click.echo(f"Serving http://127.0.0.1:{server.port}/ and /metrics while the story lasts.")
    with suppress(KeyboardInterrupt):
        asyncio.run(_play(fleet, show, seconds, keep))
    server.stop()
    if show.snapshot is not None:
        click.echo("\n" + final_table(fleet, show.snapshot))


def _listen(latest: Latest, port: int | None) -> Server:
    """Serve on the port asked for, or on the usual one, or on any."""
    try:
        return _started(latest, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return _started(latest, 0)
        fail([f"{error}; or choose another with --port"])


def _started(latest: Latest, port: int) -> Server:
    server = Server(f"127.0.0.1:{port}", pages_of(latest))
    server.start()
    return server


async def _play(fleet: Fleet, show: Show, seconds: float, keep: bool) -> None:
    """Tell the story to its end or for some real seconds, but at least one cycle of it."""
    async with stage(fleet) as running:
        end = time.monotonic() + seconds
        show.take(await running.cycle(), time.monotonic())
        while fleet.clock < STORY_SECONDS and time.monotonic() < end:
            show.take(await running.cycle(), time.monotonic())
        if keep:
            await _keep(running, show)


async def _keep(running: Stage, show: Show) -> None:
    click.echo("\nServing until interrupted (Ctrl-C), a virtual minute a second. The servers:")
    for name, url in running.urls.items():
        click.echo(f"  {name:<22}{url}")
    while True:
        await asyncio.sleep(KEEP_PACE_SECONDS)
        show.take(await running.cycle(), time.monotonic())


@dataclass(slots=True)
class Show:
    """What people see while it runs: a table redrawn in place, or a line for a first verdict."""

    fleet: Fleet
    latest: Latest
    is_terminal: bool
    snapshot: Snapshot | None = None
    _told: set[tuple[str, str]] = field(default_factory=set)
    _drawn_lines: int = 0
    _next: float = 0.0

    def take(self, snapshot: Snapshot, now: float) -> None:
        """Show a cycle, unless the last one drawn is too young; *now* is real seconds."""
        self.snapshot = snapshot
        if not self.is_terminal:
            self._tell(snapshot)
        if now < self._next:
            return
        self._next = now + REFRESH_SECONDS
        self.latest.pages = pages(snapshot)
        if self.is_terminal:
            self._draw(live_table(self.fleet, snapshot))

    def _tell(self, snapshot: Snapshot) -> None:
        for engine in snapshot.engines:
            if (news := (engine.target, verdict(engine))) not in self._told:
                self._told.add(news)
                click.echo(f"{self.fleet.clock / 3600:5.1f} h  {': '.join(news)}")

    def _draw(self, table: str) -> None:
        width = shutil.get_terminal_size().columns
        lines = [line[:width] for line in table.splitlines()]
        back = f"\x1b[{self._drawn_lines}F\x1b[J" if self._drawn_lines else ""
        click.echo(back + "\n".join(lines))
        self._drawn_lines = len(lines)
