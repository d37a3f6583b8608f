"""The running exporter: cycles on a grid of its own, pages made once a cycle, signals obeyed."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcache_exporter import garbage
from kvcache_exporter.clock import SteadyClock
from kvcache_exporter.config import Config
from kvcache_exporter.discovery import open_finders
from kvcache_exporter.expose import render
from kvcache_exporter.model import Snapshot
from kvcache_exporter.outside import Outside
from kvcache_exporter.own_process import own_metrics, trim
from kvcache_exporter.pipeline import Pipeline
from kvcache_exporter.schema import OperatorError
from kvcache_exporter.state_file.keep import Keeper
from kvcache_exporter.status import engines_json, status_page
from kvcache_exporter.web.gate import Gate, OpenGate
from kvcache_exporter.web.pages import Latest, LazyPage, Page, pages_of
from kvcache_exporter.web.server import Server
from kvcache_exporter.web.turn import Turn

log = logging.getLogger(__name__)

HTML = "text/html; charset=utf-8"
SWITCH_INTERVAL_SECONDS = 0.0001
"""How soon a thread that computes lets another one run. While a cycle is judged and rendered, an
answer on our port waits for that at each of its system calls; the default is fifty times longer."""
TRIM_CYCLES = 60
"""The first cycle asks everybody at once for whole pages; later bursts are rarer."""
Report = Callable[[Snapshot], None]
Load = Callable[[], Config]


@dataclass(slots=True)
class _Flags:
    """What signals and requests ask of the loop."""

    stop: asyncio.Event
    reload: asyncio.Event
    reload_ok: bool = True


async def serve(config: Config, load: Load, report: Report) -> None:
    """Run until SIGTERM or SIGINT; *load* reads the configuration anew on SIGHUP.

    Raises OSError with a text for the operator when the address cannot be bound, OperatorError when
    the web configuration is no good.
    """
    garbage.begin()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection to each target is kept
    loop = asyncio.get_running_loop()
    flags = _Flags(asyncio.Event(), asyncio.Event())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, flags.stop.set)
    loop.add_signal_handler(signal.SIGHUP, flags.reload.set)
    latest = Latest()
    routes = pages_of(latest, _reloader(config, loop, flags))
    server = Server(config.listen_address, routes, gate=gate_of(config))
    server.start()
    log.info("listening on %s:%d", config.listen_address.rpartition(":")[0], server.port)
    try:
        await _cycles(config, load, flags, latest, report, server.turn)
    finally:
        server.stop()


def gate_of(config: Config) -> Gate:
    """Say who may read our pages; raise OperatorError when the file that tells is no good."""
    if config.web_config_file is None:
        return OpenGate()
    from kvcache_exporter.web.security import Security

    return Security(Path(config.web_config_file))


async def _cycles(
    config: Config, load: Load, flags: _Flags, latest: Latest, report: Report, turn: Turn
) -> None:
    """Cycle after cycle on a fixed grid; a tick that is missed is skipped, never made up for."""
    clock = SteadyClock()
    outside = Outside(config, clock, turn.give_way)
    keeper = Keeper(None if config.state_file is None else Path(config.state_file))
    pipeline = Pipeline(config, open_finders(config), outside.world, keeper.load())
    tick, number = clock(), 0
    try:
        while not flags.stop.is_set():
            turn.renew()
            pipeline.notes = () if keeper.problem is None else (keeper.problem,)
            cycle = asyncio.ensure_future(pipeline.cycle(flags.reload_ok))
            if not await _first(flags.stop, cycle):
                return
            try:
                _publish(cycle.result(), outside, latest, report)
            except Exception:  # the pages stay as they are: their time stamp tells that
                log.exception("the cycle failed, the next one comes")
            keeper.save_if_due(pipeline.followers, clock())
            if number % TRIM_CYCLES == 0:
                trim()
            garbage.between_cycles(number)
            number += 1
            tick = _next_tick(tick, pipeline.config.interval_seconds, clock())
            await _sleep_until(tick, clock, flags)
            if flags.reload.is_set():
                outside = await _reload(pipeline, outside, load, flags)
    finally:
        keeper.save(pipeline.followers)
        keeper.close()
        await outside.close()


def _publish(snapshot: Snapshot, outside: Outside, latest: Latest, report: Report) -> None:
    outside.retain([status.target.name for status in snapshot.targets])
    latest.pages = pages(snapshot, outside.world.give_way)
    report(snapshot)


def pages(
    snapshot: Snapshot, pause: Callable[[], None] = lambda: None
) -> Mapping[str, Page | LazyPage]:
    """Render what Prometheus asks for now, and what people ask for when the first one asks."""
    return {
        "/metrics": Page.of(render(snapshot, pause) + own_metrics()),
        "/": LazyPage(lambda: status_page(snapshot).encode(), HTML),
        "/api/v1/engines": LazyPage(lambda: engines_json(snapshot), "application/json"),
    }


def _reloader(
    config: Config, loop: asyncio.AbstractEventLoop, flags: _Flags
) -> Callable[[], str | None] | None:
    """Let ``/-/reload`` ask for what SIGHUP asks for, where the operator switched it on."""
    if not config.enable_reload:
        return None

    def reload() -> str | None:
        loop.call_soon_threadsafe(flags.reload.set)
        return None

    return reload


async def _reload(pipeline: Pipeline, outside: Outside, load: Load, flags: _Flags) -> Outside:
    flags.reload.clear()
    try:
        config = load()
    except OperatorError as error:
        flags.reload_ok = False
        log.error("configuration not reloaded, the old one stays:\n%s", error)
        return outside
    flags.reload_ok = True
    if config.listen_address != pipeline.config.listen_address:
        log.warning("listen_address needs a restart; still on %s", pipeline.config.listen_address)
    fresh = Outside(config, outside.clock, outside.world.give_way)
    pipeline.reconfigure(config, open_finders(config), fresh.world)
    await outside.close()
    log.info("configuration reloaded")
    return fresh


async def _first(stop: asyncio.Event, cycle: asyncio.Future[Snapshot]) -> bool:
    """Wait for the cycle or for the signal to stop; True when the cycle is done."""
    stopping = asyncio.ensure_future(stop.wait())
    both: set[asyncio.Future[Any]] = {stopping, cycle}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not cycle.done():
        cycle.cancel()
        await asyncio.wait({cycle}, timeout=1.0)  # whatever else it raises now, we are leaving
        return False
    return True


def _next_tick(tick: float, interval: float, now: float) -> float:
    """Return the next point of the grid after *now*; a reload comes before its tick."""
    return tick + interval * ((now - tick) // interval + 1)


async def _sleep_until(tick: float, clock: Callable[[], float], flags: _Flags) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in (flags.stop, flags.reload)]
    await asyncio.wait(waits, timeout=max(0.0, tick - clock()), return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
