"""One cycle: every target on its own, whatever the others or we ourselves do."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from version_pages import EngineState, page

from kvcache_exporter import pipeline
from kvcache_exporter.cli._report import REPEAT_SECONDS, Reporter
from kvcache_exporter.clock import SteadyClock
from kvcache_exporter.config import Config, TargetConfig, load
from kvcache_exporter.discovery import Found, open_finders
from kvcache_exporter.follow import FORGET_SECONDS, MAX_ENGINES, Follower
from kvcache_exporter.hosts.gpu_watch import GpuState
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Problem, Scrape, Snapshot, State, Target
from kvcache_exporter.pipeline import Pipeline
from kvcache_exporter.serve import _next_tick, pages
from kvcache_exporter.world import World

PAGES = Path(__file__).parent / "data" / "pages"
BUSY = page("0.32.0", EngineState(used_blocks=7, running=2))
Answer = bytes | Problem | Exception


@dataclass
class Fleet:
    """The outside world: what each server answers now, and a clock that moves by hand."""

    answers: dict[str, Answer] = field(default_factory=dict)
    now: float = 1_790_000_000.0
    asked: list[str] = field(default_factory=list)
    versions: int = 0
    gpu_error: Exception | None = None

    async def fetch(self, target: Target) -> Scrape:
        self.asked.append(target.name)
        answer = self.answers[target.name]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Problem):
            return Scrape(target.name, self.now, 0.1, None, answer)
        return Scrape(target.name, self.now, 0.1, answer)

    async def fetch_version(self, target: Target) -> str | None:
        self.versions += 1
        return "0.32.0"

    async def read(self, targets: Sequence[Target], now: float) -> GpuState:
        if self.gpu_error is not None:
            raise self.gpu_error
        return GpuState()

    def world(self) -> World:
        return World(self.fetch, self.fetch_version, self, lambda: self.now)


class Exporter:
    """A pipeline over a fleet, cycle by cycle."""

    def __init__(self, fleet: Fleet, config: Config | None = None) -> None:
        self.fleet = fleet
        urls = [TargetConfig(f"http://{name}") for name in fleet.answers]
        self.config = config or Config(targets=tuple(urls))
        self.pipeline = Pipeline(self.config, open_finders(self.config), fleet.world())

    def cycle(self, seconds: float = 10.0) -> Snapshot:
        self.fleet.now += seconds
        self.pipeline._cycles = 0  # the first cycle waits for nobody
        return asyncio.run(self.pipeline.cycle())

    def reconfigure(self, config: Config) -> None:
        self.pipeline.reconfigure(config, open_finders(config), self.fleet.world())


def metrics(snapshot: Snapshot, name: str) -> dict[str, float]:
    """The samples of one family by target."""
    text = pages(snapshot)["/metrics"].body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {s.labels.get("target", ""): s.value for s in families[name].samples}


def problems(snapshot: Snapshot) -> dict[str, set[str]]:
    return {s.target.name: {p.code for p in s.problems} for s in snapshot.targets}


BROKEN: dict[str, Answer] = {
    "refused:1": Problem("refused", "nothing listens there: start vLLM"),
    "html:1": b"<html></html>\n",
    "empty:1": b"",
    "foreign:1": b"node_load1 1\n",
    "stats-off:1": (PAGES / "vllm-0.32.0-cpu-stats-disabled.prom").read_bytes(),
    "cut:1": BUSY[:-1],
    "malformed:1": BUSY.replace(b"vllm:num_requests_running{", b"vllm:num_requests_running{,"),
    "raises:1": RuntimeError("a fault of ours"),
}


def test_every_broken_target_is_down_with_a_reason_and_the_good_one_is_unharmed() -> None:
    snapshot = Exporter(Fleet({**BROKEN, "good:1": BUSY})).cycle()
    assert metrics(snapshot, "kvcache_target_up") == {**dict.fromkeys(BROKEN, 0.0), "good:1": 1.0}
    assert metrics(snapshot, "kvcache_used_blocks") == {"good:1": 7.0}
    for status in snapshot.targets:
        for problem in status.problems:
            assert len(problem.text) > 20, "a cause and a next step"
    assert {name for name, codes in problems(snapshot).items() if not codes} == {"good:1"}


def test_an_internal_error_is_a_problem_of_its_target_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = Exporter(Fleet({"a:1": RuntimeError("boom"), "b:1": BUSY}))
    for _ in range(3):
        assert problems(exporter.cycle()) == {"a:1": {"internal_error"}, "b:1": set()}
    assert caplog.text.count("RuntimeError: boom") == 1


def test_an_error_while_judging_harms_one_target_only(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter(Fleet({"a:1": BUSY, "b:1": BUSY}))
    exporter.cycle()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(exporter.pipeline.followers["a:1"], "judge", broken)
    snapshot = exporter.cycle()
    assert problems(snapshot) == {"a:1": {"internal_error"}, "b:1": set()}
    assert {engine.target for engine in snapshot.engines} == {"b:1"}


def test_a_gpu_watch_that_raises_leaves_the_engines_alone() -> None:
    snapshot = Exporter(Fleet({"a:1": BUSY}, gpu_error=OSError("gone"))).cycle()
    assert metrics(snapshot, "kvcache_used_blocks") == {"a:1": 7.0}
    assert [problem.code for problem in snapshot.problems] == ["internal_error"]


def test_a_target_that_fails_keeps_its_engines_without_values() -> None:
    fleet = Fleet({"a:1": BUSY})
    exporter = Exporter(fleet)
    exporter.cycle()
    fleet.answers["a:1"] = BROKEN["refused:1"]
    for _ in range(20):
        snapshot = exporter.cycle()
    [engine] = snapshot.engines
    assert (engine.reading, engine.judgement.state) == (None, State.NO_DATA)
    assert "kvcache_used_blocks" not in pages(snapshot)["/metrics"].body.decode()


def test_failures_are_counted_by_reason() -> None:
    fleet = Fleet({"a:1": BROKEN["refused:1"]})
    exporter = Exporter(fleet)
    exporter.cycle()
    exporter.cycle()
    fleet.answers["a:1"] = b"<html>\n"
    [status] = exporter.cycle().targets
    assert status.failures == (("not_metrics", 1), ("refused", 2))


def test_the_version_is_asked_once_for_each_process() -> None:
    fleet = Fleet({"a:1": BUSY})
    exporter = Exporter(fleet)
    for _ in range(3):
        [engine] = exporter.cycle().engines
        assert engine.vllm_version == "0.32.0"
    assert fleet.versions == 1
    fleet.answers["a:1"] = BUSY.replace(b"1790000000.5", b"1790009999.5")
    exporter.cycle()
    assert fleet.versions == 2


def test_engines_beyond_the_limit_are_not_exposed_and_that_is_said() -> None:
    config = Config(targets=(TargetConfig("http://a:1"), TargetConfig("http://b:1")), max_engines=1)
    fleet = Fleet({"a:1": BUSY, "b:1": BUSY})
    snapshot = Exporter(fleet, config).cycle()
    assert len(snapshot.engines) == 1
    assert [problem.code for problem in snapshot.problems] == ["too_many_engines"]


def test_seventy_engines_on_a_page_are_sixty_four_with_a_problem() -> None:
    body = "".join(f'vllm:kv_cache_usage_perc{{engine="{i}"}} 0.5\n' for i in range(70)).encode()
    snapshot = Exporter(Fleet({"a:1": body})).cycle()
    assert len(snapshot.engines) == 64
    assert "too_many_engines" in problems(snapshot)["a:1"]


def test_labels_that_churn_do_not_fill_the_memory() -> None:
    follower = Follower(Target("a", "http://a/metrics"), JudgeSettings())
    for turn in range(50):
        body = "".join(
            f'vllm:kv_cache_usage_perc{{engine="{turn}-{i}",model_name="{turn}"}} 0.5\n'
            for i in range(20)
        )
        scrape = Scrape("a", 1e9 + turn, 0.0, body.encode())
        _, engines = follower.judge(scrape, follower.read(scrape))
    assert len(follower.engines) <= MAX_ENGINES
    assert {f"49-{i}" for i in range(20)} <= {one.engine for one in engines}
    assert len(follower._traces) <= MAX_ENGINES
    assert len(follower._parser._last) == 20


def test_an_engine_gone_from_its_page_is_forgotten_after_its_time() -> None:
    fleet = Fleet({"a:1": page("0.32.0", EngineState(), EngineState())})
    exporter = Exporter(fleet)
    assert len(exporter.cycle().engines) == 2
    fleet.answers["a:1"] = page("0.32.0", EngineState())
    assert len(exporter.cycle(FORGET_SECONDS - 1).engines) == 2
    assert len(exporter.cycle(2).engines) == 1


def test_a_vanished_target_leaves_the_page() -> None:
    fleet = Fleet({"a:1": BUSY, "b:1": BUSY})
    exporter = Exporter(fleet)
    exporter.cycle()
    exporter.reconfigure(replace(exporter.config, targets=exporter.config.targets[:1]))
    assert "b:1" not in pages(exporter.cycle())["/metrics"].body.decode()


def test_unchanged_targets_keep_their_judges_over_a_reload() -> None:
    exporter = Exporter(Fleet({"a:1": BUSY, "b:1": BUSY}))
    exporter.cycle()
    before = {name: one.judges["0"] for name, one in exporter.pipeline.followers.items()}
    changed = TargetConfig("http://b:1", num_gpu_blocks=1000)
    targets = (exporter.config.targets[0], changed)
    exporter.reconfigure(replace(exporter.config, interval_seconds=5, targets=targets))
    exporter.cycle()
    after = {name: one.judges["0"] for name, one in exporter.pipeline.followers.items()}
    assert after["a:1"] is before["a:1"]
    assert after["b:1"] is not before["b:1"]


def test_new_judge_settings_begin_anew() -> None:
    exporter = Exporter(Fleet({"a:1": BUSY}))
    exporter.cycle()
    before = exporter.pipeline.followers["a:1"]
    exporter.reconfigure(replace(exporter.config, judge=JudgeSettings(hold_seconds=5)))
    exporter.cycle()
    assert exporter.pipeline.followers["a:1"] is not before


def test_a_thousand_targets_are_spread_and_the_first_cycle_waits_for_nobody() -> None:
    config = Config(interval_seconds=10)
    one = Pipeline(config, [], Fleet().world())
    assert one._spread(1000) == 0.0
    one._cycles = 1
    assert one._spread(10) == pytest.approx(10 * pipeline.SPREAD_SECONDS_PER_TARGET)
    assert one._spread(100_000) == 10 - config.scrape_timeout_seconds


def test_targets_have_their_turns_together_and_evenly_over_the_cycle() -> None:
    turns = Counter(pipeline._slot(f"server-{n}:8000", 5.0) for n in range(1000))
    slots = round(5.0 / pipeline.SLOT_SECONDS)
    assert sorted(turns) == pytest.approx([n * pipeline.SLOT_SECONDS for n in range(slots)])
    assert max(turns.values()) < 3 * 1000 / slots


@pytest.mark.parametrize(
    ("now", "tick"),
    [
        (100.0, 110.0),
        (100.4, 110.0),
        (109.999, 110.0),
        (110.0, 120.0),
        (147.0, 150.0),
        (95.0, 100.0),
    ],
    ids=["at_once", "soon", "just_in_time", "too_late", "missed_four", "reloaded_before_its_tick"],
)
def test_a_missed_tick_is_skipped_and_never_made_up_for(now: float, tick: float) -> None:
    assert _next_tick(100.0, 10.0, now) == tick


def test_the_clock_ignores_the_wall_and_never_goes_back() -> None:
    wall, monotonic = [1_790_000_000.0], [5.0]
    clock = SteadyClock(lambda: wall[0], lambda: monotonic[0])
    assert clock() == 1_790_000_000.0
    for jump in (3600.0, -7200.0, -1e9):
        wall[0] += jump
        monotonic[0] += 1.0
    assert clock() == 1_790_000_003.0


Say = Callable[[Snapshot], list[str]]


@pytest.fixture
def say(caplog: pytest.LogCaptureFixture) -> Say:
    """Report a snapshot; return the lines logged for it."""
    reporter = Reporter()
    caplog.set_level(logging.INFO)

    def lines(snapshot: Snapshot) -> list[str]:
        caplog.clear()
        reporter(snapshot)
        return [record.getMessage() for record in caplog.records]

    return lines


def test_one_line_tells_that_a_target_connected_and_what_it_is(say: Say) -> None:
    exporter = Exporter(Fleet({"a:1": BUSY}))
    assert say(exporter.cycle()) == [
        "a:1: connected, vLLM 0.32.0, 1 engine(s), model tiny, pool 999 blocks"
    ]
    assert say(exporter.cycle()) == []


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "raises:1"])
def test_one_line_tells_why_a_target_failed_and_what_to_do(say: Say, name: str) -> None:
    exporter = Exporter(Fleet({name: BROKEN[name]}))
    [line] = say(exporter.cycle())
    assert line.startswith(f"{name}: ")
    assert ": " in line.removeprefix(f"{name}: ")
    assert say(exporter.cycle()) == []


def test_a_target_that_comes_and_goes_does_not_flood_the_log(say: Say) -> None:
    fleet = Fleet({"a:1": BUSY})
    exporter = Exporter(fleet)
    lines = []
    for turn in range(int(REPEAT_SECONDS) // 10):
        fleet.answers["a:1"] = BROKEN["refused:1"] if turn % 2 else BUSY
        lines += say(exporter.cycle())
    assert (
        len(
            [
                line
                for line in lines
                if "connected" in line or "refused" in line or "listens" in line
            ]
        )
        == 2
    )


def test_a_target_that_left_discovery_is_told_and_forgotten(say: Say) -> None:
    exporter = Exporter(Fleet({"a:1": BUSY}))
    say(exporter.cycle())
    exporter.reconfigure(replace(exporter.config, targets=()))
    assert say(exporter.cycle()) == ["a:1: gone from discovery, its series end"]


def test_a_config_file_s_targets_are_what_is_scraped(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("targets: [{url: 'http://a:1', name: first}, {url: 'http://b:1'}]")
    fleet = Fleet({"first": BUSY, "b:1": BUSY})
    Exporter(fleet, load(path)).cycle()
    assert sorted(fleet.asked) == ["b:1", "first"]


class Guess:
    """Finds one pod that may or may not be a vLLM server."""

    def find(self, now: float) -> Found:
        return Found((Target("a:1", "http://a:1/metrics", guessed=True),))

    def close(self) -> None:
        pass


def test_a_guess_is_spoken_of_once_it_has_shown_vllm_series() -> None:
    fleet = Fleet({"a:1": b"node_load1 1\n"})
    pipeline = Pipeline(Config(), [Guess()], fleet.world())
    assert asyncio.run(pipeline.cycle()).targets == ()
    fleet.answers["a:1"] = BUSY
    assert [status.up for status in asyncio.run(pipeline.cycle()).targets] == [True]
    fleet.answers["a:1"] = b"node_load1 1\n"
    assert [status.up for status in asyncio.run(pipeline.cycle()).targets] == [False]


class Slow:
    """A finder whose first list takes a while to come."""

    def __init__(self) -> None:
        self.found = Found((), complete=False)

    def find(self, now: float) -> Found:
        return self.found

    def close(self) -> None:
        pass


def test_a_reload_keeps_targets_and_their_past_until_the_new_list_is_there() -> None:
    exporter = Exporter(Fleet({"a:1": BUSY, "b:1": BUSY}))
    exporter.cycle()
    before = dict(exporter.pipeline.followers)
    slow = Slow()
    exporter.pipeline.reconfigure(Config(), [slow], exporter.fleet.world())
    assert [status.target.name for status in exporter.cycle().targets] == ["a:1", "b:1"]

    slow.found = Found((before["a:1"].target,))
    assert [status.target.name for status in exporter.cycle().targets] == ["a:1"]
    assert exporter.pipeline.followers["a:1"] is before["a:1"]
    slow.found = Found((), complete=False)  # a list that was lost later is another matter
    assert exporter.cycle().targets == ()
