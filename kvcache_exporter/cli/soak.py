"""Rehearse before production: press a server within bounds, drain it, say go or no-go."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from kvcache_exporter.cli._common import fail, operator_errors
from kvcache_exporter.config import Config, with_flags
from kvcache_exporter.duration import seconds, words
from kvcache_exporter.schema import OperatorError

if TYPE_CHECKING:
    from kvcache_exporter.soak.driver import Driver
    from kvcache_exporter.soak.judge import Rehearsal
    from kvcache_exporter.soak.request import Outcome
    from kvcache_exporter.soak.watch import Watch

SETTLE_SECONDS = 35.0
"""Frees are deferred until in-flight steps end; a floor is read 30 s after the last request."""
CONNECTOR_SETTLE_SECONDS = 600.0
DRAIN_SECONDS = 300.0


class _Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(
    epilog="Example: kvcache-exporter soak http://127.0.0.1:8000 --duration 3h --concurrency 8"
)
@click.argument("url")
@click.option("--duration", type=_Duration(), default="10m", show_default=True)
@click.option("--requests", "most", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--concurrency", type=click.IntRange(1, 1024), default=8, show_default=True)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests a second at most.")
@click.option("--profile", "profiles", multiple=True, help="Repeatable; default: mixed (all).")
@click.option("--model", help="Model name; default: the first one served.")
@click.option("--interval", "interval_seconds", type=float, default=2.0, show_default=True)
@click.option("--settle", "settle_seconds", type=_Duration(), help="Wait after the drain.")
@click.option("--log", "log", type=click.File("w"), help="A JSON line for each request.")
@click.option("--report", type=click.Path(path_type=Path), help="A page with charts (HTML).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    url: str,
    duration: float,
    most: int,
    concurrency: int,
    rate: float | None,
    profiles: tuple[str, ...],
    model: str | None,
    interval_seconds: float,
    settle_seconds: float | None,
    log: TextIO | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Press the server at URL with made-up requests, watch it, drain it, judge three things.

    GPU memory stable, free blocks back after the drain, slow requests not rising. Prompts are made
    up, nothing is kept but numbers. Ctrl-C ends early and still reports.

    Exit code: 0 go, 1 one of three is bad, 2 no-go.
    """
    from kvcache_exporter.soak import report as telling
    from kvcache_exporter.soak.driver import Bounds, Driver
    from kvcache_exporter.soak.judge import exit_code, judge
    from kvcache_exporter.soak.watch import Watch

    with operator_errors():
        config = with_flags(Config(), [url], interval_seconds=interval_seconds)
        names = _profiles(profiles)
        base = url.rstrip("/").removesuffix("/v1").removesuffix("/metrics")
        name, scale = _model(base, model)
    driver = Driver(base, name, names, Bounds(duration, most, concurrency, rate), scale)
    watch = Watch(config)
    seen = _Rehearsing(watch, driver, duration, most, log).run(settle_seconds)
    rulings = judge(seen)
    click.echo(telling.to_json(seen, rulings) if as_json else telling.to_text(seen, rulings))
    if report is not None:
        report.write_text(telling.to_html(seen, rulings, base), encoding="utf-8")
        click.echo(f"report: {report}", err=True)
    sys.exit(exit_code(rulings))


def _profiles(asked: tuple[str, ...]) -> tuple[str, ...]:
    from kvcache_exporter.schema import suggestion
    from kvcache_exporter.soak.profiles import PROFILES

    chosen = [name for name in asked if name != "mixed"]
    unknown = [name for name in chosen if name not in PROFILES]
    if unknown:
        raise OperatorError(
            [f"--profile {n}: unknown{suggestion(n, [*PROFILES, 'mixed'])}" for n in unknown]
        )
    return tuple(chosen) if chosen else tuple(PROFILES)


def _model(base: str, model: str | None) -> tuple[str, float]:
    """Find the served model, and how far prompts must shrink to fit its context."""
    import requests

    from kvcache_exporter.soak.request import served_model

    try:
        with requests.Session() as session:
            served, length = served_model(session, base, 10.0)
    except requests.RequestException as error:
        fail([f"{base}/v1/models: {error}; is an OpenAI-compatible server running there?"])
    longest = 8192  # tokens that the largest profile may come to
    return model or served, min(1.0, (length or longest) / longest)


@dataclass(slots=True)
class _Rehearsing:
    """One rehearsal under way, with what it shows meanwhile."""

    watch: Watch
    driver: Driver
    duration: float
    most: int
    log: TextIO | None
    shown: float = 0.0

    def run(self, settle_seconds: float | None) -> Rehearsal:
        from kvcache_exporter.soak.judge import Rehearsal

        self.watch.start()
        idle_before = self._wait_for_a_look()
        outcomes, interrupted = self._press()
        settled, drained = None, False
        try:
            drained = self._drain()
            settled = self._settle(settle_seconds) if drained else None
        except KeyboardInterrupt:
            interrupted = True
        self.watch.stop()
        click.echo(err=True)
        return Rehearsal(
            outcomes, tuple(self.watch.moments), self.watch.judgements, drained, settled,
            idle_before, interrupted,
        )  # fmt: skip

    def _wait_for_a_look(self) -> int | None:
        deadline = time.monotonic() + 15.0
        while not self.watch.moments and time.monotonic() < deadline:
            time.sleep(0.1)
        if not self.watch.moments:
            reason = self.watch.problem or "no metrics page"
            click.echo(f"the engine cannot be watched: {reason}", err=True)
            return None
        first = self.watch.moments[0]
        return first.used_blocks if first.idle else None

    def _press(self) -> tuple[list[Outcome], bool]:
        outcomes: list[Outcome] = []
        start, interrupted = time.monotonic(), False
        stream = self.driver.outcomes()
        while True:
            try:
                outcome = next(stream, None)
            except KeyboardInterrupt:
                interrupted = True
                self.driver.stop()
                click.echo("\nending early: running requests finish first", err=True)
                stream = iter(())
                continue
            if outcome is None:
                return outcomes, interrupted
            outcomes.append(outcome)
            if self.log is not None:
                self.log.write(json.dumps(asdict(outcome)) + "\n")
                self.log.flush()
            self._show(len(outcomes), time.monotonic() - start)

    def _show(self, count: int, passed: float) -> None:
        """Show progress: a line that is written over on a terminal, now and then elsewhere."""
        terminal = sys.stderr.isatty()
        if passed - self.shown < (0.5 if terminal else 60.0):
            return
        self.shown = passed
        done = max(passed / self.duration, count / self.most)
        left = max(0.0, passed / done - passed)
        line = f"{min(done, 1.0):4.0%}  {count:,} requests, {words(left)} left  {self._state()}"
        click.echo(f"\r{line:100.100}" if terminal else line, nl=not terminal, err=True)

    def _state(self) -> str:
        if not self.watch.moments:
            return ""
        last = self.watch.moments[-1]
        states = ",".join(sorted({j.state for _, j in self.watch.judgements}))
        return f"{last.running:.0f} running, {last.used_blocks} blocks used, {states}"

    def _drain(self) -> bool:
        """Wait until the server says that nobody runs or waits."""
        if not self.watch.moments:
            return False
        deadline = time.monotonic() + DRAIN_SECONDS
        count = len(self.watch.moments)
        while time.monotonic() < deadline:
            if len(self.watch.moments) > count and self.watch.moments[-1].idle:
                return True
            time.sleep(0.1)
        click.echo("\nthe server did not drain: does somebody else use it?", err=True)
        return False

    def _settle(self, settle_seconds: float | None) -> int | None:
        usual = CONNECTOR_SETTLE_SECONDS if self.watch.connector else SETTLE_SECONDS
        wait = usual if settle_seconds is None else settle_seconds
        click.echo(f"\ndrained; blocks may settle for {words(wait)}", err=True)
        time.sleep(wait)
        count, deadline = len(self.watch.moments), time.monotonic() + 15.0
        while len(self.watch.moments) == count and time.monotonic() < deadline:
            time.sleep(0.1)
        last = self.watch.moments[-1]
        return last.used_blocks if last.idle else None
