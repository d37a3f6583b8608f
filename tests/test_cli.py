"""Every command explains itself with an example, and asking for help costs next to nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kvcache_exporter import __version__
from kvcache_exporter.cli import main

ROOT = Path(__file__).parents[1]
CONTEXT = click.Context(main)
COMMANDS = main.list_commands(CONTEXT)
HEAVY = {
    "pynvml",
    "requests",
    "prometheus_client",
    "yaml",
    "asyncio",
    "kvcache_exporter.web.server",
}


def command(name: str) -> click.Command:
    found = main.get_command(CONTEXT, name)
    assert found is not None
    return found


def help_text(name: str) -> str:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    return " ".join(result.output.split())


def test_the_commands_are_the_files() -> None:
    files = (ROOT / "kvcache_exporter" / "cli").glob("[a-z]*.py")
    assert sorted(path.stem.replace("_", "-") for path in files) == COMMANDS
    assert {"run", "demo", "check", "explain", "record", "analyze", "metrics"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_so_does_each_option(name: str) -> None:
    one = command(name)
    assert one.help
    for option in one.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help or option.show_default, f"{name} {option.opts}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_in_its_help(name: str) -> None:
    text = help_text(name)
    assert re.search(rf"Examples?:.*kvcache-exporter {name}\b", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_in_an_example_exists(name: str) -> None:
    text = help_text(name).partition("Example")[2]
    one = command(name)
    groups = [one, *one.commands.values()] if isinstance(one, click.Group) else [one]
    known = {opt for c in groups for param in c.params for opt in param.opts}
    assert set(re.findall(r"(?<!\S)--[a-z-]+", text)) <= known | {"--help"}


def test_help_lists_every_command_with_a_sentence() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z]", result.output, re.MULTILINE), name


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.split() == ["kvcache-exporter,", "version", __version__]


def test_an_unknown_command_ends_with_2() -> None:
    assert CliRunner().invoke(main, ["rnu"]).exit_code == 2


def test_asking_for_help_loads_nothing_heavy() -> None:
    code = (
        "import json, sys\n"
        "from kvcache_exporter.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not HEAVY & set(json.loads(done.stdout.splitlines()[-1]))


def test_a_good_configuration_is_fine_and_a_bad_one_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("targets: [{url: 'http://a:1'}]")
    good = CliRunner().invoke(main, ["check-config", str(path)])
    assert (good.exit_code, "fine: 1 target(s)" in good.output) == (0, True)
    path.write_text("intervall: 5\nzzz: 1")
    bad = CliRunner().invoke(main, ["check-config", str(path)])
    assert bad.exit_code == 2
    assert len(bad.stderr.splitlines()) == 2
    assert CliRunner().invoke(main, ["check-config", str(tmp_path / "no.yml")]).exit_code == 2
