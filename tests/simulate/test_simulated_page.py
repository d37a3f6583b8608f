"""The simulator prints what a real vLLM 0.32.0 printed, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvcache_exporter.simulate.config import EngineConfig
from kvcache_exporter.simulate.engine import Engine
from kvcache_exporter.simulate.page import EngineLabels, Layout, histograms, render
from kvcache_exporter.simulate.template import fresh_values, key_of
from kvcache_exporter.simulate.workload import Workload

PAGES = Path(__file__).parents[1] / "data" / "pages"
TEMPLATE = "vllm-0.32.0.prom.in"


def recording(name: str) -> bytes:
    return (PAGES / f"vllm-0.32.0-cpu-{name}.prom").read_bytes()


def sample_lines(body: bytes) -> list[tuple[str, dict[str, str], float]]:
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    split = [line.rsplit(" ", 1) for line in lines]
    labels = re.compile(r'(\w+)="([^"]*)"')
    return [(s.split("{")[0], dict(labels.findall(s)), float(value)) for s, value in split]


def values_of(body: bytes, rank: str = "0") -> dict[str, float]:
    """A recording's numbers for one engine; what belongs to the process goes to the first."""
    own = [line for line in sample_lines(body) if line[1].get("engine", "0") == rank]
    return fresh_values(TEMPLATE, 0.0) | {key_of(n, tuple(ls.items())): v for n, ls, v in own}


def engine_of(body: bytes, rank: str = "0") -> EngineLabels:
    config = next((ls for n, ls, _ in sample_lines(body) if n == "vllm:cache_config_info"), {})
    return EngineLabels(rank, "tiny", tuple((k, v) for k, v in config.items() if k != "engine"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("after-load", {"kv_cache_metrics": True}),
        ("two-api-servers-busy", {"multiprocess": True}),
        ("stats-disabled", {"log_stats": False}),
    ],
)
def test_a_recorded_state_gives_the_recorded_page(name: str, options: dict[str, bool]) -> None:
    body = recording(name)
    layout = Layout((engine_of(body),), **options)
    assert render(layout, [values_of(body)]).decode() == body.decode()


def test_two_ranks_give_the_lines_of_the_recorded_page() -> None:
    # which kind of metric comes first depends on the order of files in the server's directory
    body = recording("dp2-busy")
    layout = Layout((engine_of(body, "0"), engine_of(body, "1")), multiprocess=True)
    page = render(layout, [values_of(body, "0"), values_of(body, "1")])
    assert sorted(page.decode().splitlines()) == sorted(body.decode().splitlines())


def test_the_filtered_page_has_exactly_the_samples_asked_for() -> None:
    body = recording("after-load")
    names = frozenset({"vllm:kv_cache_usage_perc", "vllm:request_success_total", "vllm:nothing"})
    page = render(Layout((engine_of(body),), names=names), [values_of(body)]).decode()
    lines = [line for line in body.decode().splitlines() if line in page.splitlines()]
    assert page.splitlines() == lines
    assert {name for name, _, _ in sample_lines(page.encode())} == names - {"vllm:nothing"}
    assert page.count("# TYPE") == 2


@pytest.mark.parametrize("options", [{"multiprocess": True}, {"log_stats": False}])
def test_the_filtered_page_is_empty_with_several_processes_or_no_stats(
    options: dict[str, bool],
) -> None:
    names = frozenset({"vllm:kv_cache_usage_perc"})
    layout = Layout((EngineLabels("0", "tiny"),), names=names, **options)
    assert render(layout, [fresh_values(TEMPLATE, 0.0)]) == b""


def test_a_busy_engines_histograms_and_counters_agree() -> None:
    engine = Engine(EngineConfig(), Workload(1.0), seed=5)
    engine.advance(1800)
    layout = Layout((engine.labels(),))
    values = engine.metrics.page_values(histograms(layout))
    finished = values['vllm:request_success_total{finished_reason="stop"}']
    assert finished > 1000
    for name in histograms(layout) - {"vllm:inter_token_latency_seconds"}:
        buckets = [v for key, v in values.items() if key.startswith(f"{name}_bucket")]
        [count] = [v for key, v in values.items() if key.startswith(f"{name}_count")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == count >= finished
    assert values["vllm:prompt_tokens_total"] >= values["vllm:request_prompt_tokens_sum"]
    assert values["vllm:iteration_tokens_total_sum"] > values["vllm:generation_tokens_total"]
