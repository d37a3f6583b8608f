"""Judge what is already recorded, with the judge of the running exporter."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from kvcache_exporter.analyze import Frame, InputError, log, pages, prometheus, replay, table
from kvcache_exporter.analyze.report import to_json, to_text
from kvcache_exporter.judge_settings import JudgeSettings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_LONG_INPUT_BYTES = 4_000_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

EXAMPLES = """
Examples:

\b
  kvcache-exporter analyze --pages night.jsonl.gz
  kvcache-exporter analyze --csv usage.csv --json
  kvcache-exporter analyze --log vllm.log
  kvcache-exporter analyze --prometheus http://prometheus:9090 --start 2d --end now

Exit status: 0 clean, 1 a warning state was seen, 2 a leak or a stall was seen, 3 cannot tell
(also when the input cannot be read).
"""


class Moment(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Unix seconds, an ISO 8601 time, ``now``, or how long ago: ``90m``, ``6h``, ``2d``."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Turn the text into Unix seconds."""
        text = str(value).strip()
        if text == "now":
            return time.time()
        if text[-1:] in _UNITS and text[:-1].replace(".", "", 1).isdigit():
            return time.time() - float(text[:-1]) * _UNITS[text[-1]]
        try:
            return float(text)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is no time; write {self.__doc__}", param, ctx)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@click.command("analyze", epilog=EXAMPLES)
@click.option(
    "--pages", "recording", type=_FILE, help="Recording made with `record` (.jsonl[.gz])."
)
@click.option("--csv", "csv_file", type=_FILE, help="Table: t_seconds,running,waiting,usage[,...].")
@click.option("--log", "log_file", type=_FILE, help="Log of a vLLM server, V0 or V1.")
@click.option("--prometheus", "url", help="Prometheus server that scraped vLLM itself.")
@click.option("--start", type=Moment(), default="1d", show_default=True, help="With --prometheus.")
@click.option("--end", type=Moment(), default="now", show_default=True, help="With --prometheus.")
@click.option("--step", type=float, default=15.0, show_default=True, help="Seconds between points.")
@click.option("--selector", default="", help='Narrow --prometheus, e.g. namespace="prod".')
@click.option("--hold-seconds", type=float, help="How long blocks may outlive their request.")
@click.option("--num-gpu-blocks", type=int, help="Pool size, where the input does not say.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    recording: Path | None,
    csv_file: Path | None,
    log_file: Path | None,
    url: str | None,
    start: float,
    end: float,
    step: float,
    selector: str,
    hold_seconds: float | None,
    num_gpu_blocks: int | None,
    as_json: bool,
) -> None:
    """Judge a recording, a table, a log or a Prometheus range as if it happened now."""
    inputs = [one for one in (recording, csv_file, log_file, url) if one is not None]
    if len(inputs) != 1:
        raise click.UsageError("give exactly one of --pages, --csv, --log and --prometheus")
    if recording is not None:
        frames = _with_progress(pages.frames(recording), recording.stat().st_size)
    elif csv_file is not None:
        frames = _table(csv_file)
    elif log_file is not None:
        frames = _with_progress(log.frames(log_file), log_file.stat().st_size)
    else:
        frames = _with_progress(prometheus.frames(url or "", start, end, step, selector), None)
    try:
        report = replay(frames, JudgeSettings(hold_seconds=hold_seconds), num_gpu_blocks)
    except InputError as error:
        raise _Unreadable(str(error)) from error
    click.echo(json.dumps(to_json(report), indent=2) if as_json else to_text(report))
    sys.exit(report.exit_code)


class _Unreadable(click.ClickException):
    """An input that cannot be read says nothing about the engine: cannot tell."""

    exit_code = 3


def _table(path: Path) -> Iterator[Frame]:
    try:
        unread = table.ignored(path)
    except InputError as error:
        raise _Unreadable(str(error)) from error
    if unread:
        click.echo(f"columns that nothing is read from: {', '.join(unread)}", err=True)
    yield from _with_progress(table.frames(path), path.stat().st_size)


def _with_progress(frames: Iterable[Frame], size: int | None) -> Iterator[Frame]:
    """Count frames on a terminal's stderr when the input is long; otherwise stay silent."""
    long = size is None or size > _LONG_INPUT_BYTES
    if not (long and sys.stderr.isatty()):
        yield from frames
        return
    first: float | None = None
    for count, frame in enumerate(frames, 1):
        yield frame
        first = frame.time if first is None else first
        if count % 500 == 0:
            covered = timedelta(seconds=int(frame.time - first))
            click.echo(f"\r{count} scrapes, {covered} covered ", nl=False, err=True)
    click.echo("\r" + " " * 60 + "\r", nl=False, err=True)
