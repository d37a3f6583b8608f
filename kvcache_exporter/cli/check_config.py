"""Show every mistake in a configuration file at once."""

from __future__ import annotations

from pathlib import Path

import click

from kvcache_exporter.cli._common import operator_errors
from kvcache_exporter.config import load


@click.command("check-config", epilog="Example: kvcache-exporter check-config kvcache.yml")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
def command(path: Path) -> None:
    """Show every mistake in a configuration file at once; exit code 0 means it is fine."""
    with operator_errors():
        config = load(path)
    click.echo(
        f"{path}: fine: {len(config.targets)} target(s), {len(config.file_sd)} file_sd group(s), "
        f"every {config.interval_seconds:g} s, on {config.listen_address}"
    )
