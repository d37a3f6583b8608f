"""Show one target stage by stage: scrape, reading, GPUs, indications, verdict."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from kvcache_exporter.cli._common import operator_errors
from kvcache_exporter.config import Config, load, with_flags
from kvcache_exporter.schema import OperatorError


@click.command(
    epilog="Examples: kvcache-exporter explain http://127.0.0.1:8000 --scrapes 5; "
    "kvcache-exporter explain --pages night.jsonl.gz"
)
@click.argument("url", required=False)
@click.option("--pages", "recorded", type=click.Path(path_type=Path), help="A recording instead.")
@click.option("--config", "path", type=click.Path(path_type=Path), help="Credentials, judge, GPUs.")
@click.option("--scrapes", type=click.IntRange(1), default=3, show_default=True)
@click.option("--interval", "interval_seconds", type=float, default=2.0, show_default=True)
def command(
    url: str | None,
    recorded: Path | None,
    path: Path | None,
    scrapes: int,
    interval_seconds: float,
) -> None:
    """Show one target stage by stage: scrape, reading, GPUs, indications, verdict."""
    from kvcache_exporter import look
    from kvcache_exporter.explain import explain

    with operator_errors():
        if (url is None) == (recorded is None):
            raise OperatorError("give either the URL of a vLLM server or --pages FILE")
        config = load(path) if path is not None else Config()
        if recorded is not None:
            last = {one.status.target.name: one for one in look.look_along(recorded, config)}
            looked = list(last.values())
            if not looked:
                raise OperatorError(f"{recorded}: holds no scrape")
        else:
            config = with_flags(config, [url or ""], interval_seconds=interval_seconds)
            looked = [looks[-1] for looks in asyncio.run(look.look_live(config, scrapes))]
    for one in looked:
        click.echo("\n".join(explain(one)))
