"""The page that Prometheus gets: valid, complete, and silent about what is not known."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import promtool
import pytest
from full_snapshot import DOWN, ENGINE, GPU, JUDGEMENT, READING, SOURCE, TARGET, UP, snapshot
from golden_file import Golden
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kvcache_exporter import __version__
from kvcache_exporter.expose import render
from kvcache_exporter.metrics import CATALOGUE
from kvcache_exporter.metrics.table import rows
from kvcache_exporter.model import EngineReading, Snapshot, State, TargetStatus
from kvcache_exporter.serve import pages

GOLDEN = Path(__file__).parent / "data" / "golden" / "metrics.prom"
HOSTILE = (
    'x",engine="9',
    "back\\slash",
    "line\nbreak",
    "}{",
    "模型🦙",
    "</script>",
    "",
    " ",
    "\r",
    "\\n",
)
Sample = tuple[str, tuple[tuple[str, str], ...]]


def parsed(one: Snapshot) -> dict[Sample, float]:
    """All samples of the page; fails on a series that stands twice."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(render(one).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def names(one: Snapshot) -> set[str]:
    return {name for name, _ in parsed(one)}


def test_the_page_is_the_golden_one(golden: Golden) -> None:
    text = render(snapshot()).decode()
    text = text.replace(f'version="{__version__}"', 'version="VERSION"')
    golden(GOLDEN, text.replace(f'python="{platform.python_version()}"', 'python="PYTHON"'))


def test_every_family_of_the_catalogue_has_a_row_when_everything_is_known() -> None:
    assert names(snapshot()) == {metric.name for metric in CATALOGUE}


def test_every_row_has_exactly_the_labels_that_the_catalogue_says() -> None:
    said = {name: set(labels.split(", ")) - {""} for name, labels, _ in rows()}
    kubernetes = {"namespace", "pod"}
    for name, labels in parsed(snapshot()):
        assert {label for label, _ in labels} - kubernetes == said[name]


def test_promtool_finds_the_whole_page_clean() -> None:
    code, output = promtool.check_metrics(pages(snapshot())["/metrics"].body)
    assert (code, output) == (0, "")


def test_every_metric_has_our_prefix_a_help_text_and_a_type() -> None:
    for family in text_string_to_metric_families(render(snapshot()).decode()):
        assert family.name.startswith("kvcache_")
        assert len(family.documentation) > 10
        assert family.type in ("gauge", "counter")


def test_no_two_families_have_one_name() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_what_is_not_known_is_not_exposed() -> None:
    unknown = replace(
        ENGINE, reading=EngineReading("0"), judgement=replace(JUDGEMENT, hit_ratio=None)
    )
    found = names(snapshot(engines=(unknown,), gpus=(replace(GPU, used_bytes=None),)))
    assert "kvcache_used_blocks" not in found
    assert "kvcache_free_blocks" not in found
    assert "kvcache_pool_blocks" not in found
    assert "kvcache_requests" not in found
    assert "kvcache_prefix_hit_ratio" not in found
    assert "kvcache_gpu_memory_used_bytes" not in found
    assert "kvcache_gpu_memory_total_bytes" in found


def test_an_engine_whose_page_failed_keeps_its_verdict_and_loses_its_values() -> None:
    found = names(snapshot(engines=(replace(ENGINE, reading=None),)))
    assert "kvcache_verdict" in found
    assert not found & {"kvcache_used_blocks", "kvcache_engine_info", "kvcache_requests"}


def test_a_value_that_is_not_a_number_is_not_exposed() -> None:
    engine = replace(ENGINE, reading=replace(READING, running=float("nan")))
    found = parsed(snapshot(engines=(engine,)))
    states = {dict(labels)["state"] for name, labels in found if name == "kvcache_requests"}
    assert states == {"waiting"}


def test_an_empty_snapshot_tells_of_the_exporter_alone() -> None:
    empty = Snapshot(1.0, 0.5)
    assert {name.split("_")[1] for name in names(empty)} == {"exporter"}
    assert promtool.check_metrics(render(empty))[0] == 0


def test_a_vanished_target_leaves_no_series() -> None:
    text = render(snapshot(targets=(UP,), engines=(ENGINE,))).decode()
    assert DOWN.target.name not in text
    assert TARGET.name not in render(snapshot(targets=(), engines=())).decode()


@pytest.mark.parametrize("state", State)
def test_the_verdict_is_one_hot_over_all_states(state: State) -> None:
    engine = replace(ENGINE, judgement=replace(JUDGEMENT, state=state))
    verdict = {
        dict(labels)["state"]: value
        for (name, labels), value in parsed(snapshot(engines=(engine,))).items()
        if name == "kvcache_verdict"
    }
    assert verdict == {str(one): float(one is state) for one in State}


def test_free_blocks_are_pool_less_used() -> None:
    found = {name: value for (name, _), value in parsed(snapshot()).items()}
    assert found["kvcache_free_blocks"] == 999 - 7


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_label_value_comes_back_as_it_was(value: str) -> None:
    engine = replace(ENGINE, reading=replace(READING, model_name=value), target=value)
    body = render(snapshot(engines=(engine,)))
    found = parsed(snapshot(engines=(engine,)))
    [labels] = [dict(labels) for name, labels in found if name == "kvcache_engine_info"]
    assert (labels["model_name"], labels["target"]) == (value, value)
    assert promtool.parses(body)


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_any_text_in_any_label_leaves_the_page_readable(first: str, second: str) -> None:
    engine = replace(ENGINE, target=first, reading=replace(READING, model_name=second))
    found = parsed(snapshot(engines=(engine,)))
    [labels] = [dict(labels) for name, labels in found if name == "kvcache_engine_info"]
    assert (labels["target"], labels["model_name"]) == (first, second)


def test_half_a_surrogate_pair_cannot_stop_the_page() -> None:
    engine = replace(ENGINE, reading=replace(READING, model_name="\ud83e"))
    assert b'model_name="?"' in render(snapshot(engines=(engine,)))


def test_operators_labels_stand_on_the_info_metric_and_cannot_shadow_ours() -> None:
    labels = (("model_name", "mine"), ("team", "search"), ("pod", "p"))
    found = parsed(snapshot(engines=(replace(ENGINE, labels=labels),)))
    [info] = [dict(labels) for name, labels in found if name == "kvcache_engine_info"]
    assert (info["model_name"], info["team"], info["pod"]) == ("org/model", "search", "p")
    assert not any(
        "team" in dict(labels) for name, labels in found if name != "kvcache_engine_info"
    )


def test_two_sources_of_one_kind_do_not_make_a_series_twice() -> None:
    parsed(snapshot(gpu_sources=(SOURCE, replace(SOURCE, up=False, problem=None))))


def test_a_problem_that_two_engines_have_is_one_series_of_the_target() -> None:
    twice = TargetStatus(DOWN.target, False, None, 1.0, (*DOWN.problems, *DOWN.problems))
    assert parsed(snapshot(targets=(twice,)))


def test_two_sources_of_one_kind_are_up_together_and_their_gpus_add_up() -> None:
    body = render(snapshot(gpu_sources=(SOURCE, replace(SOURCE, up=False, seen=3, expected=4))))
    assert b'kvcache_gpu_source_up{source="nvml"} 0.0\n' in body
    assert b'kvcache_gpus_seen{source="nvml"} 4\n' in body
    assert b'kvcache_gpus_expected{source="nvml"} 6\n' in body
