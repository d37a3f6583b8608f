"""Commands: parse, call, print. A file here without a leading underscore is a command.

Such a module has ``command``, a click command named like the file (``_`` becomes ``-``). It is
imported only when it is called, which keeps ``--help`` fast.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import click

from kvcache_exporter import __version__


class _Commands(click.Group):
    """Finds commands as files."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all files here."""
        found = pkgutil.iter_modules(__path__)
        return sorted(m.name.replace("_", "-") for m in found if not m.name.startswith("_"))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command of that *name*."""
        if name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the first line of each file's docstring; importing them all would be slow."""
        rows = [(name, _summary(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _summary(name: str) -> str:
    source = Path(__file__).with_name(f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return text.partition("\n")[0]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvcache-exporter")
def main() -> None:
    """See inside vLLM's KV cache: exact blocks, leak verdicts, GPU memory.

    Start with: kvcache-exporter demo
    """
