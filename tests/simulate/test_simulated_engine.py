"""The engine never loses count of a block, whatever happens to it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.simulate.config import EngineConfig, Speed
from kvcache_exporter.simulate.engine import Engine
from kvcache_exporter.simulate.leaks import Leak
from kvcache_exporter.simulate.workload import Workload

LEAKS = st.builds(
    Leak,
    per=st.sampled_from(["abort", "finish", "preemption", "hour", "once"]),
    probability=st.sampled_from([0.1, 1.0]),
    blocks=st.sampled_from([None, 1, 5]),
    start_seconds=st.sampled_from([0.0, 60.0]),
)
CONFIGS = st.builds(
    EngineConfig,
    num_gpu_blocks=st.sampled_from([2, 80, 400]),
    block_size=st.sampled_from([16, 128]),
    max_num_seqs=st.sampled_from([1, 4, 256]),
    prefix_caching=st.booleans(),
    hold_seconds=st.sampled_from([0.0, 30.0]),
    leaks=st.lists(LEAKS, max_size=2).map(tuple),
)
WORKLOADS = st.builds(
    Workload,
    requests_per_second=st.sampled_from([0.05, 1.0, 4.0]),
    shared_share=st.sampled_from([0.0, 0.9]),
    prefix_tokens=st.integers(1, 600),
    abort_share=st.sampled_from([0.0, 0.5]),
)
ACTIONS = st.lists(st.sampled_from(["hang", "stall", "sleep", "resume", "restart"]), max_size=4)


def check_books(engine: Engine) -> None:
    scheduler, pool = engine.scheduler, engine.scheduler.cache.pool
    owned = [*scheduler.running, *(request for _, request in scheduler.held)]
    owners = Counter(block for request in owned for block in request.blocks)
    referenced = {block for block, count in enumerate(pool.ref_counts) if count}
    assert min(pool.ref_counts) >= 0
    assert owners + Counter(pool.leaked) == Counter(dict(enumerate(pool.ref_counts)))
    assert pool.free_blocks + len(referenced) == pool.usable_blocks
    assert 0 not in referenced
    assert all(not request.blocks for request in scheduler.waiting)
    if not owned:
        assert engine.used_blocks == engine.leaked_blocks


@settings(max_examples=60, deadline=None)
@given(CONFIGS, WORKLOADS, st.integers(0, 99), ACTIONS)
def test_every_reference_belongs_to_a_request_or_is_leaked(
    config: EngineConfig, workload: Workload, seed: int, actions: list[str]
) -> None:
    engine = Engine(config, workload, seed)
    for action in ["resume", *actions]:
        getattr(engine, action)()
        before = dict(engine.metrics.values)
        for _ in range(6):
            engine.advance(20)
            check_books(engine)
        after = engine.metrics.page_values([])
        totals = [key for key in after if key.split("{")[0].endswith("_total")]
        assert all(after[key] >= before[key] for key in totals)


@settings(max_examples=20, deadline=None)
@given(CONFIGS, WORKLOADS, st.integers(0, 99), st.lists(st.floats(0.1, 40), min_size=1))
def test_how_time_is_cut_changes_nothing(
    config: EngineConfig, workload: Workload, seed: int, cuts: list[float]
) -> None:
    cut, whole = (Engine(config, workload, seed) for _ in range(2))
    for seconds in cuts:
        cut.advance(seconds)
    whole.advance(cut.clock)
    assert cut.metrics.values == whole.metrics.values


def run(config: EngineConfig, workload: Workload, hours: float = 1.0) -> Engine:
    engine = Engine(config, workload, seed=7)
    engine.advance(hours * 3600)
    return engine


def test_an_idle_engine_has_exactly_the_leaked_blocks_in_use() -> None:
    engine = run(
        EngineConfig(leaks=(Leak("abort"),)),
        Workload(abort_share=0.3, quiet_seconds=300, busy_seconds=60),
        0.09,
    )
    assert not engine.scheduler.has_requests
    assert engine.used_blocks == engine.leaked_blocks > 0
    usable = engine.config.num_gpu_blocks - 1
    usage = engine.metrics.values["vllm:kv_cache_usage_perc"]
    assert round(usage * usable, 6) == engine.leaked_blocks


@pytest.mark.parametrize("per", ["abort", "finish", "preemption", "hour", "once"])
def test_each_leak_loses_blocks_from_its_start_on(per: str) -> None:
    config = EngineConfig(num_gpu_blocks=600, leaks=(Leak(per, 1.0, 3, start_seconds=1800),))
    engine = Engine(config, Workload(3.0, abort_share=0.1), seed=3)
    engine.advance(1799)
    assert engine.leaked_blocks == 0
    engine.advance(3600)
    assert engine.leaked_blocks > 0


def test_shared_prefixes_are_hit_and_their_share_drifts() -> None:
    workload = Workload(1.0, shared_share=0.9, shared_share_later=0.1, drift_seconds=3600)
    engine = run(EngineConfig(), workload)
    counters = engine.metrics.values
    hits, queries = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
    early = counters[hits] / counters[queries]
    before = dict(counters)
    engine.advance(3600)
    late = (counters[hits] - before[hits]) / (counters[queries] - before[queries])
    assert early > 0.4
    assert late < early / 3


def test_without_prefix_caching_nothing_is_looked_up() -> None:
    engine = run(EngineConfig(prefix_caching=False), Workload(1.0))
    assert engine.metrics.values["vllm:prefix_cache_queries_total"] == 0


def test_too_much_load_preempts_and_queues() -> None:
    engine = run(EngineConfig(num_gpu_blocks=600), Workload(3.0))
    assert engine.metrics.values["vllm:num_preemptions_total"] > 50
    assert engine.metrics.values["vllm:num_requests_waiting"] > 10


def highest(engine: Engine, key: str) -> float:
    values = []
    for _ in range(200):
        engine.advance(5)
        values.append(engine.metrics.values[key])
    return max(values)


def test_no_more_requests_run_than_allowed() -> None:
    engine = Engine(EngineConfig(max_num_seqs=2), Workload(3.0), seed=1)
    assert highest(engine, "vllm:num_requests_running") == 2


def test_a_long_queue_turns_requests_away() -> None:
    config = EngineConfig(max_num_seqs=1, max_num_queued_reqs=20)
    engine = Engine(config, Workload(3.0), seed=1)
    assert highest(engine, "vllm:num_requests_waiting") == 20
    rejected = 'vllm:admission_rejections_total{reason="max_num_queued_reqs"}'
    assert engine.metrics.values[rejected] > 0


def test_a_hung_engine_freezes_every_number() -> None:
    engine = run(EngineConfig(), Workload(1.0))
    engine.hang()
    before = dict(engine.metrics.values)
    engine.advance(600)
    assert engine.metrics.values == before


def test_a_stalled_engine_queues_and_completes_nothing() -> None:
    engine = run(EngineConfig(), Workload(1.0))
    engine.stall()
    before = dict(engine.metrics.values)
    engine.advance(600)
    after = engine.metrics.values
    assert after["vllm:num_requests_waiting"] > before["vllm:num_requests_waiting"] + 300
    assert after["vllm:generation_tokens_total"] == before["vllm:generation_tokens_total"]


def test_a_sleeping_engine_holds_nothing_and_says_so() -> None:
    engine = run(EngineConfig(hold_seconds=60), Workload(1.0))
    engine.sleep()
    engine.advance(600)
    assert engine.used_blocks == 0
    assert engine.metrics.values['vllm:engine_sleep_state{sleep_state="awake"}'] == 0
    engine.resume()
    engine.advance(600)
    assert engine.used_blocks > 0


def test_a_restart_gives_every_block_back_and_counts_from_zero() -> None:
    engine = run(EngineConfig(leaks=(Leak("finish"),), num_gpu_blocks=300), Workload(1.0))
    assert engine.leaked_blocks > 200
    engine.restart(num_gpu_blocks=500)
    assert engine.used_blocks == 0
    assert engine.scheduler.cache.pool.usable_blocks == 499
    assert engine.metrics.values["vllm:prompt_tokens_total"] == 0
    assert engine.metrics.values["process_start_time_seconds"] == 1.8e9 + 3600


def test_held_blocks_stay_after_the_last_request_and_are_given_back() -> None:
    workload = Workload(1.0, busy_seconds=60, quiet_seconds=1e6, output_tokens=2, spread=0.1)
    engine = Engine(EngineConfig(hold_seconds=480), workload, seed=1)
    engine.advance(200)
    assert engine.scheduler.has_requests is False
    assert engine.used_blocks > 100
    assert engine.metrics.values["vllm:kv_cache_usage_perc"] > 0.05
    engine.advance(500)
    assert engine.used_blocks == 0
    assert engine.metrics.values["vllm:kv_cache_usage_perc"] == 0


def test_a_slower_machine_completes_fewer_requests() -> None:
    slow = run(EngineConfig(speed=Speed(decode_tokens_per_second=2)), Workload(1.0))
    fast = run(EngineConfig(), Workload(1.0))
    done = 'vllm:request_success_total{finished_reason="stop"}'
    assert slow.metrics.values[done] < fast.metrics.values[done]
