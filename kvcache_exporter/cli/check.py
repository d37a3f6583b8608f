"""Examine servers once: connection, series, blocks, cache, pressure, GPUs, verdict so far."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcache_exporter.cli._common import operator_errors
from kvcache_exporter.config import Config, load, with_flags
from kvcache_exporter.schema import OperatorError

if TYPE_CHECKING:
    from kvcache_exporter.doctor import Answer

_MARKS = {"FINE": ("ok", "green"), "WARNING": ("warn", "yellow"), "PROBLEM": ("BAD", "red")}


@click.command(epilog="Example: kvcache-exporter check http://127.0.0.1:8000 --json")
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("--config", "path", type=click.Path(path_type=Path), help="Credentials, GPU sources.")
@click.option("--scrapes", type=click.IntRange(1), default=3, show_default=True)
@click.option("--interval", "interval_seconds", type=float, default=1.0, show_default=True)
@click.option("--expect-idle", is_flag=True, help="Fail unless drained and every block is back.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    urls: tuple[str, ...],
    path: Path | None,
    scrapes: int,
    interval_seconds: float,
    expect_idle: bool,
    as_json: bool,
) -> None:
    """Examine each URL once and say what to do next.

    Exit code: 0 fine, 1 warning, 2 problem, 3 cannot tell.
    """
    from kvcache_exporter import doctor, look

    with operator_errors():
        config = load(path) if path is not None else Config()
        if not urls and not config.targets:
            raise OperatorError("nothing to check: give the URL of a vLLM server")
        config = with_flags(config, urls, interval_seconds=interval_seconds)
    looks = asyncio.run(look.look_live(config, scrapes))
    answers = {
        seen[-1].status.target.name: doctor.examine(doctor.Evidence(seen, expect_idle))
        for seen in looks
    }
    click.echo(_json(answers) if as_json else _table(answers))
    sys.exit(doctor.worst(answer for some in answers.values() for answer in some))


def _json(answers: dict[str, list[Answer]]) -> str:
    targets = [
        {
            "target": name,
            "answers": [
                {
                    "question": one.question,
                    "level": one.level.name.lower(),
                    "text": one.text,
                    "next_step": one.next_step or None,
                }
                for one in some
            ],
        }
        for name, some in answers.items()
    ]
    return json.dumps({"targets": targets}, indent=2)


def _table(answers: dict[str, list[Answer]]) -> str:
    lines: list[str] = []
    for name, some in answers.items():
        lines.append(click.style(name, bold=True))
        width = max(len(one.question) for one in some)
        for one in some:
            mark, colour = _MARKS.get(one.level.name, ("?", "cyan"))
            lines.append(
                f"  {click.style(f'{mark:4}', fg=colour)} {one.question:{width}}  {one.text}"
            )
            if one.next_step:
                lines.append(f"       {'':{width}}  -> {one.next_step}")
    return "\n".join(lines)
