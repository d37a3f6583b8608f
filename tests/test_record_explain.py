"""Recordings survive what befalls files, and ``explain`` shows every stage, live or recorded."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import hostile
import pytest
from click.testing import CliRunner, Result
from exporter_process import WAIT_SECONDS, free_port
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import recording
from kvcache_exporter.cli import main
from kvcache_exporter.model import GpuProcess, GpuReading, Problem, Scrape
from kvcache_exporter.recording import Entry, Writer
from kvcache_exporter.schema import OperatorError

DATA = Path(__file__).parent / "data"
BUSY = (DATA / "pages" / "vllm-0.25.1-h200-busy-leaking.prom").read_bytes()
GOOD = hostile.always(hostile.response(BUSY))
ENTRIES = [
    Entry(Scrape("a:1", 1.5, 0.0, b"vllm:kv_cache_usage_perc 0.5\n")),
    Entry(
        Scrape("a:1", 2.5, 0.0, b"x 1\n"),
        (
            GpuReading("GPU-a", "nvml", index=0, total_bytes=9, processes=(GpuProcess(5, None),)),
            GpuReading("GPU-b", "nvml", processes=None),
        ),
    ),
    Entry(Scrape("b:1", 3.5, 0.0, None, Problem("failed", "nobody listens"))),
]
GPU_LINE = '{{"time": 1, "target": "a", "body": "x 1", "gpus": {}}}\n'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def written(path: Path, entries: list[Entry]) -> Path:
    writer = Writer(path)
    for entry in entries:
        writer.write(entry)
    writer.close()
    return path


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_what_was_written_is_read_back(tmp_path: Path, name: str) -> None:
    assert list(recording.read(written(tmp_path / name, ENTRIES))) == ENTRIES


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_second_recording_is_appended(tmp_path: Path, name: str) -> None:
    written(tmp_path / name, ENTRIES)
    assert list(recording.read(written(tmp_path / name, ENTRIES))) == ENTRIES * 2


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_recording_cut_off_anywhere_gives_all_that_was_whole(tmp_path: Path, name: str) -> None:
    whole = written(tmp_path / name, ENTRIES).read_bytes()
    for size in range(20, len(whole), 7):
        (tmp_path / name).write_bytes(whole[:size])
        found = list(recording.read(tmp_path / name))
        assert found == ENTRIES[: len(found)]
    assert len(found) >= 2


def test_every_entry_is_on_disk_once_it_is_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "r.jsonl.gz")
    writer.write(ENTRIES[0])
    assert list(recording.read(tmp_path / "r.jsonl.gz")) == ENTRIES[:1]
    writer.close()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense\n", "not JSON"),
        ("[1]\n", '"time" is missing'),
        ('{"target": "a", "body": null}\n', '"time" is missing'),
        ('{"time": "now", "body": null}\n', '"time" is missing'),
        ('{"time": true, "body": null}\n', '"time" is missing'),
        ('{"time": NaN, "body": null}\n', '"time" is missing'),
        ('{"time": 1e400, "body": null}\n', '"time" is missing'),
        ('{"time": 1' + "0" * 400 + ', "body": null}\n', '"time" is missing'),
        ('{"time": 1, "body": 5}\n', '"body" must be text'),
        ("[" * 100_000 + "\n", "not JSON"),
        *(
            (GPU_LINE.format(gpus), '"gpus" must be a list')
            for gpus in (
                "5",
                '["x"]',
                "[{}]",
                '[{"uuid": "a", "total_bytes": "many"}]',
                '[{"uuid": "a", "total_bytes": 1e400}]',
                '[{"uuid": "a", "processes": [{}]}]',
                '[{"uuid": "a", "processes": 5}]',
                '[{"uuid": "a", "processes": [{"pid": "x"}]}]',
            )
        ),
    ],
)
def test_a_line_that_is_no_entry_is_refused_by_its_number(
    tmp_path: Path, line: str, says: str
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"time": 1, "body": null}\n\n' + line)
    with pytest.raises(OperatorError, match="line 3") as raised:
        list(recording.read(path))
    assert says in str(raised.value)


def test_a_file_that_is_no_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(b"plain text")
    with pytest.raises(OperatorError, match="cannot be read as a recording"):
        list(recording.read(path))


def test_control_characters_in_a_target_s_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"time": 1, "target": "\\u001b[31mred", "body": "x 1"}\n')
    [entry] = recording.read(path)
    assert entry.scrape.target == " [31mred"


KEYS = ("time", "body", "target", "gpus", "uuid", "processes", "pid", "used_bytes")
LEAVES = st.none() | st.integers() | st.text(max_size=3)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner)
)


@given(JSON)
def test_any_json_gives_an_entry_or_a_refusal(data: object) -> None:
    line = json.dumps(data)
    result: object
    try:
        result = recording._entry("line 1", line)
    except OperatorError as error:
        result = error
    assert isinstance(result, Entry | OperatorError)


def test_explain_shows_every_stage_of_a_recording() -> None:
    result = run("explain", "--pages", str(DATA / "recordings" / "h200-leak-abort.jsonl.gz"))
    assert result.exit_code == 0
    for word in ("Scrape", "Reading", "GPUs", "Indications", "Verdict", "used_blocks"):
        assert word in result.output
    assert "6,176" in result.output


def test_explain_looks_at_a_live_server() -> None:
    with hostile.serve(GOOD) as server:
        result = run("explain", server.url, "--scrapes", "1")
    assert result.exit_code == 0
    assert "131,385" in result.output


def test_explain_says_why_a_server_cannot_be_read() -> None:
    result = run("explain", f"http://127.0.0.1:{free_port()}", "--scrapes", "1")
    assert "nothing listens" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "URL of a vLLM server or --pages"),
        (["http://a:1", "--pages", "x"], "either"),
        (["--pages", "/no/such.jsonl"], "/no/such.jsonl"),
        (["a:1"], "did you mean http://a:1?"),
    ],
)
def test_explain_refuses_a_wrong_call_with_2(arguments: list[str], says: str) -> None:
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_an_empty_recording_is_told(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("")
    result = run("explain", "--pages", str(tmp_path / "r.jsonl"))
    assert (result.exit_code, "holds no scrape" in result.stderr) == (2, True)


def test_a_recording_that_cannot_be_read_leaves_analyze_unable_to_tell(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("nonsense\n")
    result = run("analyze", "--pages", str(tmp_path / "r.jsonl"))
    assert result.exit_code == 3
    assert "line 1" in result.stderr


def test_record_writes_whole_pages_and_failures(tmp_path: Path) -> None:
    path, port = tmp_path / "r.jsonl.gz", free_port()
    with hostile.serve(GOOD) as server:
        urls = ["--vllm-url", server.url, "--vllm-url", f"http://127.0.0.1:{port}"]
        result = run("record", *urls, "--out", str(path), "--scrapes", "2", "--interval", "1")
    assert result.exit_code == 0
    good, bad, *_ = entries = list(recording.read(path))
    assert len(entries) == 4
    assert good.scrape.body == BUSY
    assert bad.scrape.problem is not None
    assert "nothing listens" in bad.scrape.problem.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_recording_that_is_ended_by_a_signal_can_be_read(tmp_path: Path, number: int) -> None:
    path = tmp_path / "r.jsonl.gz"
    command = [sys.executable, "-m", "kvcache_exporter", "record", "--out", str(path)]
    with hostile.serve(GOOD) as server:
        process = subprocess.Popen([*command, "--vllm-url", server.url], stderr=subprocess.PIPE)
        assert process.stderr is not None
        with process.stderr as progress:
            while b"1 scrape(s)" not in progress.read1():
                pass
            process.send_signal(number)
            code = process.wait(WAIT_SECONDS)
    assert code == (0 if number == signal.SIGINT else -signal.SIGTERM)
    assert [entry.scrape.body for entry in recording.read(path)] == [BUSY]


def test_a_place_that_cannot_be_written_ends_it_with_2(tmp_path: Path) -> None:
    result = run("record", "--vllm-url", "http://127.0.0.1:1", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_recordings_may_be_gzip_of_several_members(tmp_path: Path) -> None:
    lines = [b'{"time": 1, "body": null}\n', b'{"time": 2, "body": null}\n']
    (tmp_path / "r.jsonl.gz").write_bytes(b"".join(map(gzip.compress, lines)))
    assert [entry.scrape.time for entry in recording.read(tmp_path / "r.jsonl.gz")] == [1, 2]
