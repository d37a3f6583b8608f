"""``kvcache-exporter run`` as users meet it: a process, its log, its pages, its exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import hostile
import promtool
import pytest
from exporter_process import free_port, running

PAGES = Path(__file__).parent / "data" / "pages"
BUSY = (PAGES / "vllm-0.25.1-h200-busy-leaking.prom").read_bytes()
STATS_OFF = (PAGES / "vllm-0.32.0-cpu-stats-disabled.prom").read_bytes()
GOOD = hostile.always(hostile.response(BUSY))
STOP_SECONDS = 5.0
"""What the exporter promises from a signal to its end, whatever hangs."""


def test_a_server_is_found_scraped_and_exposed_and_the_log_says_so() -> None:
    with hostile.serve(GOOD) as server, running("--vllm-url", server.url) as exporter:
        name = f"127.0.0.1:{server.port}"
        assert "pool 131,385 blocks" in exporter.line(f"{name}: connected")
        assert exporter.value(f'kvcache_target_up{{target="{name}"}}') == 1
        assert exporter.value(f'kvcache_pool_blocks{{target="{name}",engine="0"}}') == 131385
        assert promtool.check_metrics(exporter.get()[1].encode()) == (0, "")
        assert exporter.get("/")[0] == 200
        assert exporter.get("/-/healthy")[0] == 200
        assert exporter.get("/-/ready")[0] == 200
        assert exporter.get("/no-such-page")[0] == 404
        assert exporter.get(method="DELETE")[0] == 405


def served(body: bytes, **response: str) -> hostile.Behaviour:
    return hostile.always(hostile.response(body, **response))


@pytest.mark.parametrize(
    ("behaviour", "cause", "next_step"),
    [
        (served(b"<html>hello</html>\n"), "HTML", "/metrics"),
        (served(b"<html></html>\n", content_type="text/html"), "text/html", "/metrics"),
        (served(b'{"status": "ok"}\n'), "JSON", "/metrics"),
        (served(b"node_load1 0.5\nnode_memory_bytes 9\n"), "another exporter", "vLLM's own port"),
        (served(STATS_OFF), "--disable-log-stats", "start vLLM without"),
        (served(b""), "empty", "check the path"),
        (served(BUSY[:30_000]), "cut off", "proxy"),
        (served(b"", status="404 Not Found"), "404", ""),
        (served(b"", status="503 Service Unavailable"), "503", ""),
        (hostile.reset, "", ""),
        (hostile.hang_up, "", ""),
    ],
    ids=[
        "html",
        "html_by_type",
        "json",
        "foreign",
        "stats_off",
        "zero_bytes",
        "cut",
        "404",
        "503",
        "reset",
        "hang_up",
    ],
)
def test_a_bad_answer_gives_a_line_with_its_cause_and_the_next_step(
    behaviour: hostile.Behaviour, cause: str, next_step: str
) -> None:
    with hostile.serve(behaviour) as server, running("--vllm-url", server.url) as exporter:
        name = f"127.0.0.1:{server.port}"
        line = exporter.line("level=WARNING", f"{name}: ")
        assert cause in line
        assert next_step in line
        assert exporter.value(f'kvcache_target_up{{target="{name}"}}') == 0
        assert exporter.end(signal.SIGTERM) == 0


def test_a_port_where_nothing_listens_is_told_with_what_to_do() -> None:
    port = free_port()
    with running("--vllm-url", f"http://127.0.0.1:{port}") as exporter:
        line = exporter.line(f"127.0.0.1:{port}: ")
        assert "nothing listens" in line
        assert exporter.end(signal.SIGTERM) == 0


def test_a_host_that_does_not_exist_is_told_with_what_to_do() -> None:
    with running("--vllm-url", "http://no-such-host.invalid:8000") as exporter:
        line = exporter.line("no-such-host.invalid:8000: ")
        assert "no-such-host.invalid" in line
        assert exporter.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
@pytest.mark.parametrize(
    "behaviour", [GOOD, hostile.hang, hostile.silent], ids=["good", "hanging", "silent"]
)
def test_a_signal_ends_it_with_success_whatever_a_target_does(
    behaviour: hostile.Behaviour, number: int
) -> None:
    with hostile.serve(behaviour) as server:
        options = ["--vllm-url", server.url, "--interval", "60"]
        with running(*options) as exporter:
            exporter.serving()
            while not server.connections:
                assert exporter.get("/-/healthy")[0] == 200
            assert exporter.end(number, STOP_SECONDS) == 0


def test_a_hanging_target_does_not_keep_the_others_from_their_ticks() -> None:
    with (
        hostile.serve(hostile.hang) as hanging,
        hostile.serve(GOOD) as good,
        running("--vllm-url", hanging.url, "--vllm-url", good.url, "--interval", "1") as exporter,
    ):
        exporter.line(f"127.0.0.1:{hanging.port}: ")
        exporter.line(f"127.0.0.1:{good.port}: connected")
        series = f'kvcache_target_last_success_timestamp_seconds{{target="127.0.0.1:{good.port}"}}'
        first = exporter.value(series)
        while exporter.value(series) == first:
            pass
        assert exporter.value(f'kvcache_target_up{{target="127.0.0.1:{good.port}"}}') == 1


def test_a_server_that_comes_back_is_told_and_up_again() -> None:
    port = free_port()
    options = ["--vllm-url", f"http://127.0.0.1:{port}", "--interval", "1"]
    with running(*options) as exporter:
        exporter.line(f"127.0.0.1:{port}: ")
        with hostile.serve(GOOD, port=port):
            exporter.line(f"127.0.0.1:{port}: connected")


def run_once(*arguments: str) -> tuple[int, str]:
    """Run a command that is expected to end by itself; (exit code, stderr)."""
    command = [sys.executable, "-m", "kvcache_exporter", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to scrape"),
        (["--vllm-url", "localhost:8000"], "did you mean http://localhost:8000?"),
        (["--vllm-url", "http://user:SECRET@a:8000"], "must not carry a user or password"),
        (["--vllm-url", "http://a:8000", "--interval", "0"], "--interval: must be 1 to 3600"),
        (["--vllm-url", "http://a:8000", "--interval", "soon"], "--interval"),
        (["--vllm-url", "http://a:8000", "--listen-address", "here"], "must be HOST:PORT"),
        (["--config", "/no/such/file.yml"], "cannot be read: No such file"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_a_wrong_call_ends_at_once_with_2_and_says_why(arguments: list[str], says: str) -> None:
    code, text = run_once("run", *arguments)
    assert code == 2
    assert says in text
    assert "SECRET" not in text
    assert "Traceback" not in text


def test_a_port_in_use_ends_it_with_2_and_names_the_address() -> None:
    with hostile.serve(GOOD) as server:
        address = f"127.0.0.1:{server.port}"
        code, text = run_once("run", "--vllm-url", server.url, "--listen-address", address)
    assert code == 2
    assert f"cannot listen on {address}" in text
    assert "Traceback" not in text


RELOADED = "kvcache_exporter_config_last_reload_successful"


def test_a_bad_file_on_sighup_keeps_the_old_configuration_and_shows(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    with hostile.serve(GOOD) as server:
        good = f"interval_seconds: 1\ntargets: [{{url: '{server.url}', name: first}}]\n"
        path.write_text(good)
        with running("--config", str(path)) as exporter:
            exporter.line("first: connected")
            assert exporter.value(RELOADED) == 1
            path.write_text("targets: [{ulr: x}]\n")
            exporter.signal(signal.SIGHUP)
            exporter.line("configuration not reloaded")
            while exporter.value(RELOADED) != 0:
                pass
            assert exporter.value('kvcache_target_up{target="first"}') == 1
            path.write_text(good.replace("first", "second"))
            exporter.signal(signal.SIGHUP)
            exporter.line("second: connected")
            while exporter.value(RELOADED) != 1:
                pass
            assert exporter.value('kvcache_target_up{target="first"}') is None
            assert exporter.end(signal.SIGTERM) == 0


def test_reload_over_http_is_off_unless_switched_on(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    with hostile.serve(GOOD) as server:
        path.write_text(f"targets: [{{url: '{server.url}', name: first}}]\n")
        with running("--config", str(path)) as exporter:
            exporter.line("first: connected")
            assert exporter.get("/-/reload", "POST")[0] == 403
        with running("--config", str(path), "--enable-reload") as exporter:
            exporter.line("first: connected")
            path.write_text(path.read_text().replace("first", "second"))
            assert exporter.get("/-/reload", "GET")[0] == 405
            assert exporter.get("/-/reload", "POST")[0] == 200
            exporter.line("second: connected")


def test_targets_of_a_file_come_and_go_while_it_runs(tmp_path: Path) -> None:
    path, found = tmp_path / "config.yml", tmp_path / "targets.json"
    with hostile.serve(GOOD) as server:
        path.write_text(
            f"interval_seconds: 1\nfile_sd: [{{files: ['{found}'], refresh_seconds: 0.5}}]\n"
        )
        found.write_text("[]")
        with running("--config", str(path)) as exporter:
            exporter.serving()
            found.write_text(f'[{{"targets": ["127.0.0.1:{server.port}"]}}]')
            exporter.line(f"127.0.0.1:{server.port}: connected")
            found.write_text("[")
            exporter.line("its last 1 targets are kept")
            found.write_text("[]")
            exporter.line("gone from discovery")
