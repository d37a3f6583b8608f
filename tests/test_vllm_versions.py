"""Every vLLM release from 0.4.2 to 0.32.0 gives the exact blocks, whatever its page is like."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reading import codes, only, read
from version_pages import VERSIONS, EngineState, page
from version_state import DATA, number

BUSY = EngineState(pool_blocks=999, used_blocks=7, running=2, waiting=3, deferred=1)
STATES = [BUSY, EngineState(), replace(BUSY, used_blocks=999), replace(BUSY, used_blocks=499)]


def is_v0(version: str) -> bool:
    return number(version) < (0, 8)


def tells_pool(version: str, engines: int = 1) -> bool:
    """Whether the label is a number: unknown in 0.8 and to front ends that attach to engines."""
    attached = engines > 1 and (0, 15) <= number(version) < (0, 20)
    return is_v0(version) or not (number(version) < (0, 9) or attached)


@pytest.mark.parametrize("state", STATES, ids=["busy", "idle", "full", "half"])
@pytest.mark.parametrize("version", [v for v in VERSIONS if tells_pool(v)])
def test_blocks_are_exact_from_the_first_page_on(version: str, state: EngineState) -> None:
    engine = only(page(version, state))
    assert (engine.pool_blocks, engine.used_blocks) == (state.pool_blocks, state.used_blocks)
    assert not engine.problems


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_and_counters_are_what_the_engine_counted(version: str) -> None:
    engine = only(page(version, BUSY))
    assert (engine.running, engine.waiting) == (2, 3)
    assert (engine.prompt_tokens, engine.generation_tokens) == (6400, 3200)
    assert engine.completions == 40
    assert engine.preemptions == (3 if number(version) >= (0, 6) else None)
    assert engine.finished_requests == 40
    assert engine.model_name == "tiny"
    assert engine.block_size_tokens == 16


@pytest.mark.parametrize("version", [v for v in VERSIONS if not is_v0(v)])
def test_prefix_hits_are_tokens_in_every_v1_release(version: str) -> None:
    engine = only(page(version, BUSY))
    assert (engine.prefix_hit_tokens, engine.prefix_query_tokens) == (1600, 6400)


def test_v0_prints_its_hit_ratio_and_minus_one_when_it_is_off() -> None:
    assert only(page("0.6.6.post1", BUSY)).hit_ratio == 0.25
    assert only(page("0.6.6.post1", BUSY, prefix_caching=False)).hit_ratio is None


@pytest.mark.parametrize("version", [v for v in VERSIONS if not is_v0(v) and tells_pool(v, 2)])
def test_each_rank_has_the_blocks_of_its_own_pool(version: str) -> None:
    ranks = [BUSY, replace(BUSY, used_blocks=400)]
    found = {
        one.engine: (one.pool_blocks, one.used_blocks)
        for one in read(page(version, *ranks)).engines
    }
    true = {str(rank): (one.pool_blocks, one.used_blocks) for rank, one in enumerate(ranks)}
    assert found == (true if number(version) >= (0, 10) else {"1": true["1"]})


@pytest.mark.parametrize("version", [v for v in VERSIONS if not is_v0(v)])
def test_an_unknown_pool_is_recovered_from_the_ratios(version: str) -> None:
    pages = [
        page(version, replace(BUSY, used_blocks=used), num_gpu_blocks="None", core="V1")
        for used in (*range(100, 180, 3), 0, 7)
    ]
    engine = only(*with_idle(version, "None", pages))
    assert (engine.pool_blocks, engine.used_blocks) == (999, 7)


def with_idle(version: str, label: str, pages: list[bytes]) -> list[bytes]:
    """The pages with an idle one last but one: that tells whether the null block is counted."""
    idle = page(version, EngineState(pool_blocks=999), num_gpu_blocks=label, core="V1")
    return [*pages[:-1], idle, pages[-1]]


@pytest.mark.parametrize("version", [v for v in VERSIONS if number(v) >= (0, 9)])
def test_a_stale_pool_label_is_overruled_by_the_ratios(version: str) -> None:
    pages = [
        page(version, replace(BUSY, used_blocks=used), num_gpu_blocks="1234")
        for used in (*range(100, 180, 3), 0, 7)
    ]
    if number(version) < (0, 24):  # later pages tell the pool a second time, in tokens
        assert only(pages[0]).used_blocks is None
    engine = only(*with_idle(version, "1234", pages))
    assert (engine.pool_blocks, engine.used_blocks) == (999, 7)


@pytest.mark.parametrize("version", [v for v in VERSIONS if not is_v0(v)])
def test_an_operator_can_tell_the_pool_that_a_page_does_not(version: str) -> None:
    body = page(version, BUSY, num_gpu_blocks="None", core="V1")
    engine = only(body, num_gpu_blocks=1000)
    assert (engine.pool_blocks, engine.used_blocks) == (999, 7)


@pytest.mark.parametrize(
    "version", [v for v in VERSIONS if (0, 8) <= number(v) <= (0, 10, 2) or is_v0(v)]
)
def test_the_v0_engine_counts_no_null_block_in_any_release(version: str) -> None:
    for used in (0, 7, 500):
        engine = only(page(version, replace(BUSY, used_blocks=used), core="V0"))
        assert (engine.pool_blocks, engine.used_blocks) == (999, used)


@pytest.mark.parametrize("block_size", [4, 16, 528, 8576])
def test_any_block_size_is_read(block_size: int) -> None:
    engine = only(page("0.32.0", replace(BUSY, block_size=block_size)))
    assert engine.block_size_tokens == block_size
    assert engine.used_blocks == 7


def test_an_unknown_pool_is_said_with_the_way_out() -> None:
    engine = only(page("0.8.5", BUSY))
    assert codes(engine) == {"pool_size_unknown"}
    assert "num_gpu_blocks" in engine.problems[0].text
    assert engine.usage_ratio == pytest.approx(8 / 1000)


def test_gauges_copied_by_pid_are_one_gauge() -> None:
    body = page("0.11.0", BUSY, multiprocess=True, pid_used_blocks=(0, 7))
    engine = only(body, num_gpu_blocks=1000)
    assert engine.used_blocks == 7
    assert "pid_copies" in codes(engine)


def test_the_spelling_without_pid_copies_is_the_true_one() -> None:
    body = page("0.9.2", BUSY, multiprocess=True, pid_used_blocks=(700, 7))
    assert only(body, num_gpu_blocks=1000).used_blocks == 7


@pytest.mark.parametrize("version", [v for v in VERSIONS if number(v) >= (0, 11, 1)])
def test_sleep_is_seen_where_it_is_told(version: str) -> None:
    assert only(page(version, replace(BUSY, sleeping=True))).sleeping is True
    assert only(page(version, BUSY)).sleeping is False
    assert only(page("0.10.2", BUSY)).sleeping is None


@pytest.mark.parametrize("version", [v for v in VERSIONS if number(v) >= (0, 20)])
def test_waiting_for_other_things_than_capacity_is_told_apart(version: str) -> None:
    assert only(page(version, BUSY)).waiting_deferred == 1
    assert only(page("0.19.1", BUSY)).waiting_deferred is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("prefix", ["vllm_", "ray_vllm_", "ray_vllm:"])
def test_every_prefix_reads_the_same(version: str, prefix: str) -> None:
    plain, renamed = only(page(version, BUSY)), only(page(version, BUSY, prefix=prefix))
    assert replace(renamed, naming=plain.naming) == plain
    assert renamed.naming == prefix


CONNECTORS = sorted(
    {f["condition"].split()[0] for f in DATA["families"] if "Connector" in f.get("condition", "")}
)


@pytest.mark.parametrize("feature", CONNECTORS)
def test_a_connector_shows(feature: str) -> None:
    assert only(page("0.32.0", BUSY, features=[feature])).connector
    assert not only(page("0.32.0", BUSY)).connector


@pytest.mark.parametrize("version", VERSIONS)
def test_prefix_caching_is_told(version: str) -> None:
    told = only(page(version, BUSY)).prefix_caching
    assert told is True
    assert only(page(version, BUSY, prefix_caching=False)).prefix_caching is False


@pytest.mark.parametrize("version", VERSIONS)
def test_creation_times_are_never_taken_for_counters(version: str) -> None:
    engine = only(page(version, BUSY))
    for name in ("prompt_tokens", "generation_tokens", "completions", "preemptions", "steps"):
        value = getattr(engine, name)
        assert value is None or value < 1e6


@pytest.mark.parametrize("version", VERSIONS)
def test_a_page_without_its_info_metric_still_gives_the_ratio(version: str) -> None:
    engine = only(page(version, BUSY, without=["cache_config_info"]))
    assert engine.used_blocks is None
    assert engine.usage_ratio is not None
    assert engine.running == 2
