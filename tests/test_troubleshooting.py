"""docs/troubleshooting.md tells the truth: its commands are run and their outputs compared."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner
from golden_file import Golden
from test_check import page

from kvcache_exporter.cli import main

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "troubleshooting.md"
_BLOCK = re.compile(
    r"<!-- (page (?P<page>\S+)|files) -->\n```console\n\$ kvcache-exporter (?P<command>[^\n]+)\n"
    r"(?P<output>.*?)```",
    re.DOTALL,
)
PORT = "127.0.0.1:8000"


def test_every_command_prints_what_the_document_says(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "no-gpus.yml").write_text("gpus: {nvml: {enabled: false}}\n")
    golden(DOCUMENT, _BLOCK.sub(lambda block: _renew(block, tmp_path), DOCUMENT.read_text()))


def _renew(block: re.Match[str], folder: Path) -> str:
    command = block["command"]
    if block["page"]:
        body = (ROOT / "tests" / "data" / "pages" / block["page"]).read_bytes()
        with page(body) as url:
            output = _run(command.replace(f"http://{PORT}", url), folder)
        output = output.replace(url.removeprefix("http://"), PORT)
    else:
        output = _run(command, folder)
    kind = f"page {block['page']}" if block["page"] else "files"
    return f"<!-- {kind} -->\n```console\n$ kvcache-exporter {command}\n{output}```"


def _run(command: str, folder: Path) -> str:
    arguments = [part.replace("tests/", f"{ROOT}/tests/") for part in command.split()]
    if arguments[0] == "check":
        arguments += ["--config", str(folder / "no-gpus.yml"), "--scrapes", "2", "--interval", "1"]
    output = CliRunner().invoke(main, arguments).stdout.replace(f"{ROOT}/", "")
    output = re.sub(r"in \d+\.\d ms", "in 1.3 ms", output)  # this machine's, not the server's
    return re.sub(r" +$", "", output, flags=re.MULTILINE)
