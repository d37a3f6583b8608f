"""What the documents say is what the program says; ``--update`` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from golden_file import Golden

from kvcache_exporter.cli import main
from kvcache_exporter.metrics import CATALOGUE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BEGIN, END = "<!-- printed by: kvcache-exporter {} -->\n", "<!-- end -->\n"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), terminal_width=100)
    assert result.exit_code == 0
    return result.output.rstrip() + "\n"


def with_part(path: Path, command: str, text: str) -> str:
    """The document with the part between its marks replaced."""
    begin = BEGIN.format(command)
    head, found, rest = path.read_text(encoding="utf-8").partition(begin)
    assert found, f"{path} lacks the line {begin!r}"
    return head + begin + "\n" + text + "\n" + END + rest.partition(END)[2]


def test_the_catalogue_of_metrics_is_the_documented_one(golden: Golden) -> None:
    path = DOCS / "metrics.md"
    golden(path, with_part(path, "metrics --markdown", printed("metrics", "--markdown")))


def test_every_command_is_documented_with_its_help(golden: Golden) -> None:
    path, context = DOCS / "commands.md", click.Context(main)
    names = main.list_commands(context)
    parts = [f"## {name}\n\n```\n{help_of(name)}```\n" for name in names]
    golden(path, with_part(path, "COMMAND --help", "\n".join(parts)))


def help_of(name: str) -> str:
    return printed(name, "--help").replace("Usage: main ", "Usage: kvcache-exporter ")


def test_every_metric_says_where_it_comes_from_in_a_sentence() -> None:
    for metric in CATALOGUE:
        assert metric.help[0].isupper() or metric.help[0].isdigit(), metric.name
        assert metric.help.endswith("."), metric.name


@pytest.mark.parametrize(
    "path", sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")]), ids=lambda p: p.name
)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if ":" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []
