"""The state file: verdicts survive a restart, and nothing that happens to the file stops a run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import openai_server
import pytest
from openai_server import Behaviour

from kvcache_exporter.follow import Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Scrape, Target
from kvcache_exporter.state_file.keep import SAVE_SECONDS, Keeper

PAGE = openai_server.PAGE.read_bytes()


def follower(*times: float) -> Follower:
    """Follow a target that was scraped at each of *times*."""
    one = Follower(Target("t", "http://t/metrics"), JudgeSettings())
    for moment in times:
        scrape = Scrape("t", moment, 0.01, PAGE)
        one.judge(scrape, one.read(scrape))
    return one


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "state")
    assert keeper.load() == {}
    before = follower(*(1_790_000_000.0 + 15 * i for i in range(200)))
    keeper.save({"t": before})
    keeper.close()
    judges = Keeper(tmp_path / "state").load()
    after = follower()
    after.restore(judges["t"], 1_790_003_000.0)

    assert after.engines == ("0",)
    assert after.judges["0"].judgement is not None
    assert after.judges["0"].judgement.state is before.judges["0"].judgement.state  # type: ignore[union-attr]
    assert after.judges["0"].history.time == before.judges["0"].history.time


def test_it_is_written_now_and_then(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "state")
    keeper.load()
    keeper.save_if_due({}, 0.0)
    (tmp_path / "state").unlink()
    keeper.save_if_due({}, SAVE_SECONDS - 1)
    assert not (tmp_path / "state").exists()
    keeper.save_if_due({}, SAVE_SECONDS + 1)
    assert (tmp_path / "state").exists()


def test_two_exporters_do_not_share_a_file(tmp_path: Path) -> None:
    first, second = Keeper(tmp_path / "state"), Keeper(tmp_path / "state")
    first.load()
    assert second.load() == {}
    assert second.problem is not None
    assert "state_file of its own" in second.problem.text


def test_a_folder_that_is_not_there_is_a_problem_and_no_failure(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "no" / "state")
    assert keeper.load() == {}
    assert keeper.problem is not None
    keeper.save({})


def test_a_place_that_cannot_be_written_is_told_until_it_can(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "state")
    keeper.load()
    (tmp_path / "state.new").mkdir()
    keeper.save({})
    assert keeper.problem is not None
    (tmp_path / "state.new").rmdir()
    keeper.save({})
    assert keeper.problem is None


def test_a_judge_that_cannot_be_written_is_a_problem_and_no_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, one = Keeper(tmp_path / "state"), follower(1e9)
    keeper.load()
    one.judges["0"].history.held_seconds = object()  # type: ignore[attr-defined]
    keeper.save({"a": one})
    assert keeper.problem is not None
    assert "internal error" in caplog.text
    keeper.save({})
    assert keeper.problem is None


def test_without_a_file_nothing_is_kept() -> None:
    keeper = Keeper(None)
    assert keeper.load() == {}
    keeper.save_if_due({}, 0.0)
    assert keeper.problem is None


def run(url: str, port: int, state: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "kvcache_exporter", "run", "--vllm-url", url, "--interval", "1",
         "--listen-address", f"127.0.0.1:{port}", "--state-file", str(state)],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def since(port: int) -> str:
    """Return when the verdict began, as the page says it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("kvcache_verdict_since_timestamp_seconds{"):
                return str(line.rpartition(" ")[2])
        time.sleep(0.2)
    raise AssertionError("no verdict")


def test_a_restarted_exporter_says_since_when_as_before(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with openai_server.serve(Behaviour()) as url:
        seen = []
        for _ in range(2):
            process = run(url, port, tmp_path / "state")
            seen.append(since(port))
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0

    assert seen[0] == seen[1]
