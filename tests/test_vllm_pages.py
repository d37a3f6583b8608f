"""Real pages and single traps: what is there is read exactly, what is not there stays unknown."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from reading import codes, only, read, samples

from kvcache_exporter.engines import vllm
from kvcache_exporter.engines._vllm_layout import MAX_ENGINES
from kvcache_exporter.model import EngineReading

PAGES = Path(__file__).parent / "data" / "pages"
INFO = 'vllm:cache_config_info{{engine="{}",block_size="16",num_gpu_blocks="{}"}} 1.0\n'


def recorded(name: str) -> bytes:
    return (PAGES / f"{name}.prom").read_bytes()


def page(
    usage: float | str = 7 / 999, *lines: str, labels: str = 'engine="0",model_name="m"'
) -> bytes:
    text = INFO.format(0, 1000) + f"vllm:kv_cache_usage_perc{{{labels}}} {usage}\n"
    return (text + "".join(f"{line}\n" for line in lines)).encode()


def gauge(name: str, value: float, labels: str = 'engine="0",model_name="m"') -> str:
    return f"vllm:{name}{{{labels}}} {value}"


def test_a_fresh_cpu_server() -> None:
    engine = only(recorded("vllm-0.32.0-cpu-fresh"))
    assert (engine.pool_blocks, engine.used_blocks) == (511, 0)
    assert (engine.running, engine.waiting) == (0, 0)
    assert engine.problems == ()


def test_a_cpu_server_after_load() -> None:
    engine = only(recorded("vllm-0.32.0-cpu-after-load"))
    assert (engine.pool_blocks, engine.used_blocks) == (511, 0)
    assert engine.completions
    assert engine.prefix_query_tokens
    assert engine.process_start_time_seconds
    assert engine.resident_memory_bytes
    assert engine.http_requests
    assert engine.problems == ()


def test_two_ranks_on_one_page_each_have_half_of_the_label() -> None:
    engines = read(recorded("vllm-0.32.0-cpu-dp2-busy")).engines
    assert [one.engine for one in engines] == ["0", "1"]
    assert [one.pool_blocks for one in engines] == [511, 511]
    assert all(one.used_blocks is not None for one in engines)


def test_two_api_servers_print_neither_start_nor_creation_times() -> None:
    engine = only(recorded("vllm-0.32.0-cpu-two-api-servers-busy"))
    assert engine.pool_blocks == 511
    assert engine.used_blocks is not None
    assert engine.process_start_time_seconds is None


def test_a_leaking_h200_gives_its_blocks_to_the_last_one() -> None:
    idle, busy = (only(recorded(f"vllm-0.25.1-h200-{kind}")) for kind in ("idle", "busy-leaking"))
    assert idle.pool_blocks == busy.pool_blocks == 131385
    assert idle.pool_tokens == 131386 * 16
    assert busy.used_blocks


def test_a_server_without_statistics_has_no_engines() -> None:
    assert read(recorded("vllm-0.32.0-cpu-stats-disabled")).engines == ()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (recorded("vllm-0.32.0-cpu-stats-disabled"), "--disable-log-stats"),
        (b"node_load1 0.1\nnode_memory_bytes 5\n", "another exporter"),
        (b"# HELP vllm:kv_cache_usage_perc x\n", "no samples"),
    ],
)
def test_an_absence_is_explained_by_its_cause(body: bytes, says: str) -> None:
    problem = vllm.absence(body)
    assert problem.code == "no_vllm_series"
    assert says in problem.text


def test_a_page_that_says_nothing_but_usage_leaves_all_else_unknown() -> None:
    engine = only(b"vllm:kv_cache_usage_perc 0.25\n")
    known = {one.name for one in fields(EngineReading) if getattr(engine, one.name) is not None}
    assert known == {"engine", "naming", "usage_ratio", "connector", "problems"}


def test_a_missing_engine_label_is_engine_0() -> None:
    engine = only(page(labels='model_name="m"'))
    assert (engine.engine, engine.used_blocks) == ("0", 7)


def test_an_info_metric_without_engine_label_serves_every_engine() -> None:
    body = 'vllm:cache_config_info{num_gpu_blocks="1000"} 1\nvllm:kv_cache_usage_perc{engine="3"} '
    assert only(f"{body}{7 / 999}\n".encode()).used_blocks == 7


@pytest.mark.parametrize("used", [0, 1, 333, 400, 999])
def test_one_rank_of_an_external_load_balancer_has_the_whole_label(used: int) -> None:
    body = INFO.format(3, 1000) + f'vllm:kv_cache_usage_perc{{engine="3"}} {used / 999!r}\n'
    engine = only(body.encode())
    assert (engine.engine, engine.pool_blocks, engine.used_blocks) == ("3", 999, used)


@pytest.mark.parametrize("used", [0, 1, 333, 999])
def test_ranks_of_a_hybrid_load_balancer_share_the_label_among_themselves(used: int) -> None:
    lines = [INFO.format(rank, 2000) for rank in (4, 5)]
    lines += [f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {used / 999!r}\n' for rank in (4, 5)]
    engines = read("".join(lines).encode()).engines
    assert [(one.pool_blocks, one.used_blocks) for one in engines] == [(999, used)] * 2


def test_sixteen_engines_on_one_page_stay_apart() -> None:
    lines = [INFO.format(i, 16_000) for i in range(16)]
    lines += [f'vllm:kv_cache_usage_perc{{engine="{i}"}} {i / 999}\n' for i in range(16)]
    engines = read("".join(lines).encode()).engines
    assert [one.engine for one in engines] == [str(i) for i in range(16)]
    assert [one.used_blocks for one in engines] == list(range(16))


def test_more_engines_than_the_limit_are_cut_with_a_word() -> None:
    count = MAX_ENGINES + 3
    lines = [f'vllm:kv_cache_usage_perc{{engine="{i}"}} 0.5\n' for i in reversed(range(count))]
    reading = read("".join(lines).encode())
    assert [one.engine for one in reading.engines] == [str(i) for i in range(MAX_ENGINES)]
    assert [problem.code for problem in reading.problems] == ["too_many_engines"]


@pytest.mark.parametrize("usage", ["NaN", "+Inf", "-Inf"])
def test_a_usage_that_is_no_number_is_unknown(usage: str) -> None:
    engine = only(page(usage))
    assert (engine.usage_ratio, engine.used_blocks) == (None, None)
    assert codes(engine) == {"usage_missing", "not_finite"}


@pytest.mark.parametrize("usage", [-0.001, 1.01, 57.3])
def test_a_usage_outside_its_range_is_shown_but_nothing_is_derived(usage: float) -> None:
    engine = only(page(), page(usage))
    assert (engine.usage_ratio, engine.used_blocks, engine.pool_blocks) == (usage, None, 999)
    assert codes(engine) == {"usage_out_of_range"}


def test_a_last_bit_too_much_is_a_full_pool() -> None:
    engine = only(page(1.0000001))
    assert (engine.usage_ratio, engine.used_blocks) == (1.0, 999)
    assert engine.problems == ()


def test_a_single_block_of_a_big_pool_is_seen() -> None:
    body = INFO.format(0, 102_565) + f'vllm:kv_cache_usage_perc{{engine="0"}} {1 / 102_564!r}\n'
    assert only(body.encode()).used_blocks == 1


def test_one_poisoned_counter_spoils_no_other() -> None:
    lines = [gauge("prompt_tokens_total", float("nan")), gauge("generation_tokens_total", 5)]
    engine = only(page(7 / 999, *lines))
    assert (engine.prompt_tokens, engine.generation_tokens, engine.used_blocks) == (None, 5, 7)
    assert codes(engine) == {"not_finite"}


def test_old_and_new_names_are_never_summed() -> None:
    lines = [
        gauge("gpu_cache_usage_perc", 7 / 999),
        *(
            gauge(f"{old}prefix_cache_{what}_total", 100)
            for old in ("", "gpu_")
            for what in ("hits", "queries")
        ),
    ]
    engine = only(page(7 / 999, *lines))
    assert engine.usage_ratio == 7 / 999
    assert (engine.prefix_hit_tokens, engine.prefix_query_tokens) == (100, 100)


@pytest.mark.parametrize("suffix", ["", "_total"])
def test_counters_are_read_with_and_without_their_suffix(suffix: str) -> None:
    lines = [
        gauge(f"prompt_tokens{suffix}", 5),
        gauge("prompt_tokens_created", 1_750_000_000),
        gauge(f"request_success{suffix}", 4, 'engine="0",finished_reason="stop"'),
        gauge("request_success_created", 1_750_000_000, 'engine="0",finished_reason="stop"'),
    ]
    engine = only(page(7 / 999, *lines))
    assert (engine.prompt_tokens, engine.completions) == (5, 4)
    assert engine.process_start_time_seconds == 1_750_000_000


def test_aborts_are_no_completions() -> None:
    reasons = {"stop": 10, "length": 5, "abort": 100, "error": 2, "repetition": 1}
    lines = [
        gauge("request_success_total", count, f'engine="0",finished_reason="{reason}"')
        for reason, count in reasons.items()
    ]
    assert only(page(7 / 999, *lines)).completions == 18


def test_pid_copies_are_one_gauge_whose_largest_counts() -> None:
    lines = [
        f'vllm:num_requests_running{{engine="0",pid="{pid}"}} {3 * (pid == 5)}' for pid in range(8)
    ]
    engine = only(page(7 / 999, *lines))
    assert engine.running == 3
    assert codes(engine) == {"pid_copies"}


def test_of_two_series_with_the_same_labels_the_first_stands() -> None:
    lines = [gauge("num_requests_running", 3), gauge("num_requests_running", 9)]
    engine = only(page(7 / 999, *lines))
    assert engine.running == 3
    assert codes(engine) == {"duplicate_series"}


def test_two_models_under_one_engine_are_an_aggregating_page() -> None:
    lines = [gauge("num_requests_running", n, f'engine="0",model_name="{n}"') for n in (3, 9)]
    engine = only(page(7 / 999, *lines))
    assert engine.running == 3
    assert "directly" in engine.problems[0].text


def test_ray_replicas_are_engines_of_their_own_with_their_own_pools() -> None:
    lines = []
    for replica, used in (("a", 7), ("b", 400)):
        labels = f'engine="0",ReplicaId="{replica}"'
        lines += [
            f'ray_vllm_cache_config_info{{{labels},num_gpu_blocks="1000"}} 1',
            f"ray_vllm_kv_cache_usage_perc{{{labels}}} {used / 999}",
        ]
    engines = read("\n".join([*lines, ""]).encode()).engines
    assert [(one.engine, one.pool_blocks, one.used_blocks) for one in engines] == [
        ("a/0", 999, 7),
        ("b/0", 999, 400),
    ]


def test_the_model_name_is_read_from_the_gauges_where_info_has_none() -> None:
    assert only(page()).model_name == "m"


@pytest.mark.parametrize(
    "model", ["/data/a b", 'x",engine="9', "a\\b", "}{", "模型🦙", "</script>", "a,b=c"]
)
def test_a_strange_model_name_changes_nothing_else(model: str) -> None:
    escaped = model.replace("\\", "\\\\").replace('"', '\\"')
    engine = only(page(labels=f'engine="0",model_name="{escaped}"'))
    assert (engine.engine, engine.used_blocks, engine.model_name) == ("0", 7, model)


@pytest.mark.parametrize("label", ["None", "", "0", "-5", "1e3", "１２", "9" * 4000])
def test_a_pool_label_that_is_no_count_says_nothing(label: str) -> None:
    body = INFO.format(0, label) + 'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    assert only(body.encode()).pool_blocks is None


def test_the_token_capacity_is_preferred_to_blocks_times_block_size() -> None:
    labels = 'engine="0",block_size="528",num_gpu_blocks="1000",kv_cache_size_tokens="70000"'
    info = f"vllm:cache_config_info{{{labels}}} 1\n"
    engine = only(f'{info}vllm:kv_cache_usage_perc{{engine="0"}} {7 / 999}\n'.encode())
    assert (engine.pool_tokens, engine.pool_blocks, engine.used_blocks) == (70000, 999, 7)


def test_only_completion_requests_count_as_http_requests_whatever_their_status() -> None:
    lines = [
        'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 5.0',
        'http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 2.0',
        'http_requests_total{handler="/metrics",method="GET",status="2xx"} 900.0',
    ]
    assert only(page(7 / 999, *lines)).http_requests == 7


def test_start_and_memory_of_several_processes_are_not_added_up() -> None:
    lines = [
        f'{name}{{WorkerId="{i}"}} {value + i}'
        for name, value in (
            ("process_start_time_seconds", 1.7e9),
            ("process_resident_memory_bytes", 5e9),
        )
        for i in range(2)
    ]
    engine = only(page(7 / 999, *lines))
    assert (engine.process_start_time_seconds, engine.resident_memory_bytes) == (1.7e9, 5e9)


def test_a_connector_s_failures_and_stores_are_summed_over_its_series() -> None:
    lines = [
        gauge("nixl_num_failed_transfers_total", 2),
        gauge("nixl_num_failed_notifications_total", 1),
        *(gauge("kv_offload_store_bytes_total", 10, f'engine="0",tier="{i}"') for i in range(3)),
    ]
    engine = only(page(7 / 999, *lines))
    assert engine.connector
    assert (engine.transfer_errors, engine.stored_bytes) == (3, 30)


def test_a_page_that_changes_its_series_is_laid_out_anew() -> None:
    first, second = page(7 / 999), page(8 / 999, gauge("num_requests_running", 4))
    engine = only(first, second, first, second)
    assert (engine.used_blocks, engine.running) == (8, 4)


def test_reading_does_not_change_the_samples() -> None:
    parsed = samples(recorded("vllm-0.32.0-cpu-after-load"))
    before = repr(parsed)
    vllm.read(parsed)
    assert repr(parsed) == before
