"""One cycle: every target on its own, whatever the others or we ourselves do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleet import BROKEN, BUSY, Exporter, Fleet, metrics, problems
from version_pages import EngineState, page

from kvcache_exporter.config import Config, TargetConfig
from kvcache_exporter.follow import FORGET_SECONDS, MAX_ENGINES, Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Scrape, State, Target
from kvcache_exporter.serve import pages


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
