"""Print the catalogue of metrics as a table."""

from __future__ import annotations

import click


@click.command(epilog="Example: kvcache-exporter metrics --markdown > docs/metrics.md")
@click.option("--markdown", is_flag=True, help="As a Markdown table, as docs/metrics.md has it.")
def command(markdown: bool) -> None:
    """Print the catalogue of metrics as a table."""
    from kvcache_exporter.metrics.table import markdown_table, text_table

    click.echo(markdown_table() if markdown else text_table())
