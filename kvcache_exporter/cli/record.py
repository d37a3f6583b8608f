"""Capture scrapes and GPU readings in a file, for bug reports and replays."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from kvcache_exporter.cli._common import fail, operator_errors, vllm_url
from kvcache_exporter.config import Config, with_flags
from kvcache_exporter.schema import OperatorError


@click.command(
    epilog="Example: kvcache-exporter record --vllm-url http://127.0.0.1:8000 --out night.jsonl.gz"
)
@vllm_url
@click.option(
    "--out",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Where to write.",
)
@click.option("--interval", "interval_seconds", type=float, default=10.0, show_default=True)
@click.option("--scrapes", type=click.IntRange(1), help="Stop after so many; default: Ctrl-C.")
def command(
    vllm_urls: tuple[str, ...], path: Path, interval_seconds: float, scrapes: int | None
) -> None:
    """Capture scrapes and GPU readings in FILE (.jsonl or .jsonl.gz); appends if it exists.

    Pages hold model names and figures, never a prompt. Whole pages are recorded.
    """
    with operator_errors():
        if not vllm_urls:
            raise OperatorError("nothing to record: give --vllm-url http://HOST:PORT")
        config = with_flags(
            Config(filtered_route=False), vllm_urls, interval_seconds=interval_seconds
        )
    try:
        written = asyncio.run(_record(config, path, scrapes))
    except OSError as error:
        fail([f"{path}: cannot be written: {error.strerror}"])
    click.echo(
        f"\n{written} scrape(s) in {path}; look at it: kvcache-exporter explain --pages {path}"
    )


async def _record(config: Config, path: Path, scrapes: int | None) -> int:
    from kvcache_exporter import look, recording

    writer, written, start = recording.Writer(path), 0, time.monotonic()
    try:
        async for entries in look.entries(config, scrapes):
            for entry in entries:
                writer.write(entry)
                written += 1
                if entry.scrape.problem is not None:
                    click.echo(f"\n{entry.scrape.target}: {entry.scrape.problem.text}", err=True)
            passed = time.monotonic() - start
            click.echo(f"\r{written} scrape(s), {passed:.0f} s; Ctrl-C ends", nl=False, err=True)
    except asyncio.CancelledError:  # Ctrl-C is the usual way to end a recording
        pass
    finally:
        writer.close()
    return written
