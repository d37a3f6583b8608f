"""``check``, ``baseline``, ``soak`` and ``record`` against a real vLLM, healthy and leaking."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from load import Load
from server import BLOCKS, Server

SHORT = ("--duration", "25s", "--concurrency", "6", "--settle", "3s", "--interval", "1")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvcache_exporter", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def answers(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    target = json.loads(done.stdout)["targets"][0]
    return {one["question"]: one for one in target["answers"]}


def test_check_finds_a_healthy_server_fine(vllm: Server) -> None:
    Load(vllm.port, 20).run()
    done = run("check", vllm.url, "--json", "--expect-idle")
    found = answers(done)

    assert done.returncode in (0, 3), done.stdout  # 3: no GPU source on a machine without driver
    assert "0.32.0" in found["vLLM"]["text"]
    assert f"of {BLOCKS - 1} blocks" in found["blocks of engine 0"]["text"]
    assert found["engine 0 drained"]["level"] == "fine"


def test_soak_says_go_on_a_healthy_server(vllm: Server, tmp_path: Path) -> None:
    log, page = tmp_path / "requests.jsonl", tmp_path / "report.html"
    done = run("soak", vllm.url, *SHORT, "--profile", "short-short", "--profile", "cancels",
               "--log", log, "--report", page, "--json")  # fmt: skip
    result = json.loads(done.stdout)

    assert done.returncode == 0, done.stdout + done.stderr
    assert result["verdict"] == "go"
    assert result["cancelled"] > 0
    assert result["settled_used_blocks"] == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == result["requests"]
    assert all("prompt" not in line or isinstance(line["prompt_tokens"], int) for line in lines)
    assert "<svg" in page.read_text()


def test_a_leak_is_told_by_baseline_soak_and_check(vllm: Server, tmp_path: Path) -> None:
    kept = tmp_path / "good.yml"
    assert run("baseline", "save", vllm.url, "--out", kept).returncode == 0
    assert run("baseline", "compare", vllm.url, kept).returncode in (0, 1)

    vllm.leak(abort=1.0)
    done = run("soak", vllm.url, *SHORT, "--profile", "cancels", "--json")
    vllm.leak()
    Load(vllm.port, 2, clients=1, max_tokens=4).run()
    lost = int(vllm.truth()["orphaned"])
    ruling = json.loads(done.stdout)["rulings"][1]

    assert lost > 0
    assert done.returncode >= 1, done.stdout + done.stderr
    assert ruling["passed"] is False
    assert f"{lost:,} blocks did not come back" in ruling["because"]
    assert "aborts" in ruling["because"]
    compared = run("baseline", "compare", vllm.url, kept)
    assert compared.returncode == 2, compared.stdout
    assert f"{lost:,} now" in compared.stdout
    assert (
        answers(run("check", vllm.url, "--json", "--expect-idle"))["engine 0 drained"]["level"]
        == "problem"
    )


def test_a_recording_can_be_explained(vllm: Server, tmp_path: Path) -> None:
    recording = tmp_path / "night.jsonl.gz"
    assert run("record", "--vllm-url", vllm.url, "--out", recording, "--scrapes", 3,
               "--interval", 1).returncode == 0  # fmt: skip
    done = run("explain", "--pages", recording)

    assert done.returncode == 0
    assert "3 scrape(s)" in done.stdout
