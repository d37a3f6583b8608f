"""The one-shot doctor: every question answered with a level, and a next step where one is due."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvcache_exporter.cli import main
from kvcache_exporter.doctor import Answer, Level, worst

PAGES = Path(__file__).parent / "data" / "pages"
BUSY = (PAGES / "vllm-0.25.1-h200-busy-leaking.prom").read_bytes()
IDLE = (PAGES / "vllm-0.32.0-cpu-after-load.prom").read_bytes()
USAGE = b'kv_cache_usage_perc{engine="0",model_name="tiny"} '


@contextmanager
def page(body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            found = self.path == "/metrics"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            if found:
                self.wfile.write(body)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no-gpus.yml").write_text("gpus: {nvml: {enabled: false}}\n")
    monkeypatch.chdir(tmp_path)


def check(*arguments: str) -> Result:
    options = ["--interval", "1", "--scrapes", "2", "--config", "no-gpus.yml"]
    return CliRunner().invoke(main, ["check", *options, *arguments])


def answers(body: bytes, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    with page(body) as url:
        done = check(url, "--json", *options)
    target = json.loads(done.stdout)["targets"][0]
    return done.exit_code, {one["question"]: one for one in target["answers"]}


def test_an_idle_server_is_fine() -> None:
    code, found = answers(IDLE)

    assert code == 0
    assert "0 of 511 blocks" in found["blocks of engine 0"]["text"]
    assert found["freshness of engine 0"]["text"] == "idle, so nothing has to move"


def test_gauges_that_stand_still_while_busy_are_a_warning_with_a_probe() -> None:
    code, found = answers(BUSY)

    assert code == 1
    assert found["freshness of engine 0"]["level"] == "warning"
    assert "one token" in found["freshness of engine 0"]["next_step"]


def test_a_drained_server_whose_blocks_stay_fails_expect_idle() -> None:
    leaking = IDLE.replace(USAGE + b"0.0", USAGE + repr(5 / 511).encode())
    code, found = answers(leaking, "--expect-idle")

    assert code == 2
    assert found["engine 0 drained"]["text"].startswith("5 blocks in use with nobody running")


def test_a_drained_server_whose_blocks_are_back_passes_expect_idle() -> None:
    assert answers(IDLE, "--expect-idle")[1]["engine 0 drained"]["level"] == "fine"


def test_a_full_pool_speaks_for_its_size() -> None:
    full = IDLE.replace(USAGE + b"0.0", USAGE + b"1.0")
    for name, value in ((b"running", b"16.0"), (b"waiting", b"9.0")):
        series = b"num_requests_" + name + b'{engine="0",model_name="tiny"} '
        full = full.replace(series + b"0.0", series + value)
    _, found = answers(full)

    assert "--gpu-memory-utilization (now 0.92)" in found["queue of engine 0"]["next_step"]


@pytest.mark.parametrize(
    ("body", "question", "text"),
    [
        (b"<html>hello</html>\n", "vLLM", "HTML"),
        (b"node_load1 0.5\n", "vLLM", "another exporter"),
        ((PAGES / "vllm-0.32.0-cpu-stats-disabled.prom").read_bytes(), "vLLM", "log-stats"),
        (b"", "connection", "empty"),
    ],
)
def test_what_is_no_vllm_is_a_problem_with_its_cause(body: bytes, question: str, text: str) -> None:
    code, found = answers(body)

    assert code == 2
    assert text in found[question]["text"] + found[question]["next_step"]


def test_nobody_there_is_a_problem() -> None:
    done = check("http://127.0.0.1:9")

    assert done.exit_code == 2
    assert "nothing listens on 127.0.0.1:9" in done.stdout


def test_the_worst_of_several_servers_decides() -> None:
    with page(IDLE) as url:
        assert check(url, "http://127.0.0.1:9").exit_code == 2


def test_an_address_with_a_mistake_is_refused() -> None:
    done = check("127.0.0.1:8000")

    assert done.exit_code == 2
    assert "did you mean http://127.0.0.1:8000?" in done.stderr


def test_cannot_tell_is_less_than_a_warning_and_more_than_fine() -> None:
    def answer(level: Level) -> Answer:
        return Answer("q", level, "")

    assert worst([answer(Level.FINE)]) is Level.FINE
    assert worst([answer(Level.FINE), answer(Level.UNKNOWN)]) is Level.UNKNOWN
    assert worst([answer(Level.UNKNOWN), answer(Level.WARNING)]) is Level.WARNING
    assert worst([answer(Level.WARNING), answer(Level.PROBLEM)]) is Level.PROBLEM
