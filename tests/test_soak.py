"""The rehearsal: bounds, retries, the three judgements, the report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import openai_server
import pytest
from click.testing import CliRunner
from openai_server import Behaviour

from kvcache_exporter.cli import main
from kvcache_exporter.model import Judgement, State
from kvcache_exporter.soak.driver import Bounds, Driver
from kvcache_exporter.soak.judge import Rehearsal, exit_code, judge
from kvcache_exporter.soak.profiles import PROFILES
from kvcache_exporter.soak.report import to_html, to_json, to_text
from kvcache_exporter.soak.request import Outcome
from kvcache_exporter.soak.watch import Moment

GIB = 2**30


def outcome(number: int, latency: float = 1.0, first: float = 0.1, ok: bool = True) -> Outcome:
    return Outcome(
        time=0.0, id=number, profile="short-short", status=200 if ok else 500,
        latency_seconds=latency, first_token_seconds=first, prompt_tokens=9,
        completion_tokens=10, error=None if ok else "HTTP status 500",
    )  # fmt: skip


def moments(gpu: Sequence[float | None]) -> list[Moment]:
    return [
        Moment(float(i), 0, 511, 0.0, 0.0, None if g is None else int(g * GIB))
        for i, g in enumerate(gpu)
    ]


def rehearsal(
    outcomes: Sequence[Outcome] = (),
    gpu: Sequence[float | None] = (70.0,) * 30,
    settled: int | None = 0,
    idle: int | None = 0,
    state: State = State.OK,
) -> Rehearsal:
    judgement = Judgement(state, 0.0, 1.0, ("12 blocks more",), state is State.LEAK)
    some = outcomes or [outcome(i) for i in range(90)]
    return Rehearsal(some, moments(gpu), (("0", judgement),), True, settled, idle)


def passed(seen: Rehearsal) -> list[bool | None]:
    return [ruling.passed for ruling in judge(seen)]


def test_a_healthy_rehearsal_is_a_go() -> None:
    seen = rehearsal()

    assert passed(seen) == [True, True, True]
    assert exit_code(judge(seen)) == 0
    assert to_text(seen, judge(seen)).startswith("GO\n")


def test_memory_that_rises_only_in_warm_up_is_stable() -> None:
    assert passed(rehearsal(gpu=[60.0, 65.0, 69.0] + [70.0] * 27))[0] is True


def test_memory_that_goes_on_rising_is_not_stable() -> None:
    assert passed(rehearsal(gpu=[60 + 0.3 * i for i in range(30)]))[0] is False


def test_without_a_gpu_memory_cannot_be_judged() -> None:
    assert passed(rehearsal(gpu=[None] * 30))[0] is None


def test_blocks_that_stay_after_the_drain_are_named_by_event() -> None:
    cancelled = [Outcome(0, i, "cancels", 200, 1, 0.1, 9, 3, cancelled=True) for i in range(10)]
    ruling = judge(rehearsal([*cancelled, *(outcome(i) for i in range(90))], settled=50))[1]

    assert ruling.passed is False
    assert "50 blocks did not come back" in ruling.because
    assert "5.0 for each of 10 aborts" in ruling.because


def test_blocks_that_were_there_before_do_not_count() -> None:
    assert passed(rehearsal(settled=7, idle=7))[1] is True


def test_a_server_that_never_idles_leaves_the_blocks_unjudged_but_not_a_called_leak() -> None:
    assert passed(rehearsal(settled=None))[1] is None
    assert passed(rehearsal(settled=None, state=State.LEAK))[1] is False


def test_requests_that_slow_down_by_token_are_a_bad_sign() -> None:
    slowing = [outcome(i, latency=1.0 if i < 60 else 5.0) for i in range(90)]
    assert passed(rehearsal(slowing))[2] is False


def test_a_few_slow_requests_are_chance() -> None:
    some = [outcome(i, latency=5.0 if i in (80, 85, 88) else 1.0) for i in range(90)]
    assert passed(rehearsal(some))[2] is True


def test_many_failures_are_bad_whatever_the_others_took() -> None:
    failing = [outcome(i, ok=i % 5 != 0) for i in range(90)]
    assert passed(rehearsal(failing))[2] is False


def test_two_bad_of_three_is_a_no_go() -> None:
    seen = rehearsal(gpu=[60 + 0.3 * i for i in range(30)], settled=9)

    assert exit_code(judge(seen)) == 2
    assert json.loads(to_json(seen, judge(seen)))["verdict"] == "no-go"
    assert "NO-GO" in to_html(seen, judge(seen), "<server>")
    assert "&lt;server&gt;" in to_html(seen, judge(seen), "<server>")


def test_nothing_seen_is_not_a_go() -> None:
    seen = Rehearsal([], [], (), False, None, None)
    assert to_text(seen, judge(seen)).startswith("NOTHING COULD BE JUDGED")


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_make_the_same_prompts_for_the_same_seed_within_their_ranges(name: str) -> None:
    profile = PROFILES[name]
    first, again = profile.ask(Random(3)), profile.ask(Random(3))
    words = len(first.prompt.split()) - profile.shared_words

    assert first == again
    assert profile.prompt_words[0] <= words <= profile.prompt_words[1]
    assert profile.max_tokens[0] <= first.max_tokens <= profile.max_tokens[1]


def drive(url: str, bounds: Bounds, *profiles: str) -> list[Outcome]:
    driver = Driver(url, "tiny", profiles or ("short-short",), bounds)
    return list(driver.outcomes())


def test_the_driver_keeps_to_its_number_of_requests() -> None:
    behaviour = Behaviour()
    with openai_server.serve(behaviour) as url:
        outcomes = drive(url, Bounds(60, requests=17, concurrency=4))

    assert len(outcomes) == len(behaviour.requests) == 17
    assert all(one.ok and one.completion_tokens for one in outcomes)
    assert sorted(one.id for one in outcomes) == list(range(17))


def test_a_busy_server_is_asked_again_within_a_bound() -> None:
    behaviour = Behaviour(fail_first=1)
    with openai_server.serve(behaviour) as url:
        [one] = drive(url, Bounds(60, requests=1, concurrency=1))

    assert (one.ok, one.retries, len(behaviour.requests)) == (True, 1, 2)


def test_a_server_that_refuses_is_not_asked_again() -> None:
    behaviour = Behaviour(status=404)
    with openai_server.serve(behaviour) as url:
        [one] = drive(url, Bounds(60, requests=1, concurrency=1))

    assert (one.ok, one.error, len(behaviour.requests)) == (False, "HTTP status 404", 1)


def test_a_stream_that_ends_early_is_a_failure() -> None:
    with openai_server.serve(Behaviour(end_early=True)) as url:
        [one] = drive(url, Bounds(60, requests=1, concurrency=1))

    assert one.error == "the stream ended early"


def soak(url: str, *options: object) -> tuple[int, str, str]:
    arguments = ["soak", url, "--interval", "1", "--settle", "1s", *map(str, options)]
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.stdout, done.stderr


def test_soak_finds_blocks_lost_by_aborts(tmp_path: Path) -> None:
    log, page = tmp_path / "log.jsonl", tmp_path / "report.html"
    with openai_server.serve(Behaviour(leak_per_cancel=3)) as url:
        code, text, _ = soak(
            url, "--requests", 40, "--profile", "cancels", "--log", log, "--report", page, "--json"
        )
    result = json.loads(text)
    lines = [json.loads(line) for line in log.read_text().splitlines()]

    assert code == 1
    assert result["settled_used_blocks"] == 3 * result["cancelled"] > 0
    assert "3.0 for each of" in result["rulings"][1]["because"]
    assert len(lines) == 40
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--profile", "shrot-short"], "did you mean short-short?"),
        (["--duration", "soon"], "write 90s, 30m, 3h or 1h30m"),
    ],
)
def test_a_mistake_says_what_would_be_right(options: list[str], text: str) -> None:
    code, _, errors = soak("http://127.0.0.1:9", *options)

    assert code == 2
    assert text in errors


def test_nobody_there_is_said_before_anything_is_sent() -> None:
    code, out, errors = soak("http://127.0.0.1:9")

    assert (code, out) == (2, "")
    assert "is an OpenAI-compatible server running there?" in errors


def test_ctrl_c_still_reports() -> None:
    behaviour = Behaviour()
    with openai_server.serve(behaviour) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvcache_exporter", "soak", url, "--duration", "10m",
             "--rate", "5", "--interval", "1", "--settle", "0s", "--json",
             "--profile", "short-short"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while len(behaviour.requests) < 3 and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate(timeout=60)

    assert process.returncode in (0, 1), errors
    assert json.loads(text)["interrupted"] is True
    assert "ending early" in errors
