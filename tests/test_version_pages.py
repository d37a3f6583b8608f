"""The generated pages agree with the recorded ones and hold each release's traps."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from version_pages import VERSIONS, EngineState, page

PAGES = Path(__file__).parent / "data" / "pages"
STATE = EngineState(used_blocks=7, running=2, waiting=1)
Labels = dict[str, str]


def samples(body: bytes) -> list[tuple[str, Labels, float]]:
    families = text_string_to_metric_families(body.decode())
    return [(s.name, s.labels, s.value) for family in families for s in family.samples]


def values(body: bytes, name: str) -> list[float]:
    return [value for found, _, value in samples(body) if found == name]


def cache_config(body: bytes) -> list[Labels]:
    return [labels for name, labels, _ in samples(body) if name == "vllm:cache_config_info"]


def usage(version: str) -> float:
    body = page(version, STATE)
    both = values(body, "vllm:kv_cache_usage_perc") + values(body, "vllm:gpu_cache_usage_perc")
    return both[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_prints_requests_usage_and_cache_configuration(version: str) -> None:
    body = page(version, STATE)
    assert values(body, "vllm:num_requests_running") == [2]
    assert values(body, "vllm:num_requests_waiting") == [1]
    assert 0.006 < usage(version) < 0.0081
    assert cache_config(body)[0]["block_size"] == "16"


@pytest.mark.parametrize(
    ("version", "recording"),
    [
        ("0.25.1", "vllm-0.25.1-h200-idle.prom"),
        ("0.32.0", "vllm-0.32.0-cpu-after-load.prom"),
    ],
)
def test_generated_labels_are_those_of_the_recorded_page(version: str, recording: str) -> None:
    def label_names(body: bytes) -> dict[str, frozenset[str]]:
        return {name: frozenset(labels) for name, labels, _ in samples(body) if "vllm:" in name}

    recorded = label_names((PAGES / recording).read_bytes())
    features = ("--kv-cache-metrics", "--enable-mfu-metrics")
    generated = label_names(page(version, STATE, features=features))
    assert recorded.items() <= generated.items()


def test_the_null_block_counts_as_used_until_0_10_1() -> None:
    assert usage("0.10.1.1") == pytest.approx(8 / 1000)
    assert usage("0.10.2") == pytest.approx(7 / 999)
    assert usage("0.6.6.post1") == pytest.approx(7 / 999)


@pytest.mark.parametrize(
    ("version", "engines", "label"),
    [
        ("0.6.6.post1", 1, "999"),
        ("0.8.5", 1, "None"),
        ("0.9.1", 1, "1000"),
        ("0.11.2", 2, "2000"),
        ("0.17.1", 2, "None"),
        ("0.20.2", 2, "2000"),
    ],
)
def test_the_pool_label_is_summed_or_unknown(version: str, engines: int, label: str) -> None:
    found = cache_config(page(version, *[STATE] * engines))
    assert {labels["num_gpu_blocks"] for labels in found} == {label}


def test_lookups_are_counted_in_blocks_in_0_8() -> None:
    assert values(page("0.8.5", STATE), "vllm:gpu_prefix_cache_hits_total") == [100]
    assert values(page("0.9.1", STATE), "vllm:gpu_prefix_cache_hits_total") == [1600]


def test_usage_is_copied_by_pid_with_several_api_servers_in_0_9_2() -> None:
    body = page("0.9.2", STATE, multiprocess=True)
    assert len(values(body, "vllm:kv_cache_usage_perc")) == 2
    assert len(values(body, "vllm:gpu_cache_usage_perc")) == 1


def test_only_the_last_rank_shows_before_0_10() -> None:
    ranks = [labels["engine"] for labels in cache_config(page("0.9.2", STATE, STATE))]
    assert ranks == ["1"]


def test_creation_times_are_missing_in_several_processes_and_in_v0() -> None:
    assert b"_created" in page("0.32.0", STATE)
    assert b"_created" not in page("0.32.0", STATE, multiprocess=True)
    assert b"_created" not in page("0.10.2", STATE, core="V0")
