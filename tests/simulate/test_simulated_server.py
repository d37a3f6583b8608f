"""Simulated servers answer over HTTP like vLLM, and the exporter's own client reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
import requests

from kvcache_exporter.engines import vllm
from kvcache_exporter.model import Problem, Target
from kvcache_exporter.samples import Parser
from kvcache_exporter.scrape import Client, FilteredRoute
from kvcache_exporter.simulate.config import NIXL, PLAIN, EngineConfig
from kvcache_exporter.simulate.engine import Engine
from kvcache_exporter.simulate.server import Server, ServerThread
from kvcache_exporter.simulate.site import Site
from kvcache_exporter.simulate.workload import Workload


def busy(**options: object) -> Engine:
    engine = Engine(EngineConfig(**options), Workload(1.0), seed=2)  # type: ignore[arg-type]
    engine.advance(600)
    return engine


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    sites = {
        "plain": Site([busy()]),
        "ranks": Site([busy(), Engine(EngineConfig(), Workload(0.5), seed=9)], multiprocess=True),
        "silent": Site([busy()], log_stats=False),
        "prefill": Site([busy(templates=(*PLAIN, NIXL), hold_seconds=60)]),
        "uncached": Site([busy(prefix_caching=False)]),
    }
    with ServerThread(Server(sites)) as running:
        yield running


def get(server: Server, name: str, path: str = "/metrics") -> requests.Response:
    return requests.get(server.url(name).removesuffix("/metrics") + path, timeout=10)


def read(server: Server, name: str) -> vllm.TargetReading:
    samples = Parser(vllm.NAMES, vllm.PLAIN).parse(get(server, name).content)
    assert not isinstance(samples, Problem)
    return vllm.read(samples, vllm.Memory(), None)[0]


def test_the_usual_routes_answer(server: Server) -> None:
    assert get(server, "plain", "/version").json() == {"version": "0.32.0"}
    assert get(server, "plain", "/health").status_code == 200
    assert get(server, "plain", "/v1/models").json()["data"][0]["id"] == "tiny"
    assert get(server, "plain", "/nothing").status_code == 404
    assert get(server, "nobody").status_code == 404
    assert requests.post(server.url("plain"), timeout=10).status_code == 405


def test_the_filter_works_behind_the_slash_only(server: Server) -> None:
    query = "?name[]=vllm:num_requests_running&name[]=vllm:kv_cache_usage_perc"
    filtered = get(server, "plain", f"/metrics/{query}").text
    assert filtered.count("\nvllm:") == 2
    assert len(get(server, "plain", f"/metrics{query}").text) > 40_000
    assert get(server, "ranks", f"/metrics/{query}").text == ""


def test_a_reading_finds_the_engines_blocks_exactly(server: Server) -> None:
    engine = busy()
    [reading] = read(server, "plain").engines
    assert reading.used_blocks == engine.used_blocks > 0
    assert reading.pool_blocks == engine.config.num_gpu_blocks - 1
    assert reading.http_requests == reading.completions
    assert reading.connector is False


def test_two_ranks_are_two_engines_with_their_own_pools(server: Server) -> None:
    found = read(server, "ranks").engines
    assert [one.engine for one in found] == ["0", "1"]
    assert [one.pool_blocks for one in found] == [2047, 2047]


def test_options_show_as_in_vllm(server: Server) -> None:
    assert read(server, "silent").engines == ()
    assert read(server, "prefill").engines[0].connector is True
    assert read(server, "uncached").engines[0].prefix_caching is False


def test_the_exporters_client_proves_and_uses_the_filtered_route(server: Server) -> None:
    names = [*(f"vllm:{name}" for name in vllm.NAMES), *vllm.PLAIN]
    parser = Parser(vllm.NAMES, vllm.PLAIN)

    async def scrape(name: str) -> list[bool]:
        client = Client()
        route = FilteredRoute(client.fetch, names, parser.parse)
        target = Target(name, server.url(name))
        scrapes = [await route.fetch(target) for _ in range(4)]
        await client.close()
        assert all(one.body for one in scrapes)
        return [one.filtered for one in scrapes]

    assert asyncio.run(scrape("plain"))[-1] is True
    assert not any(asyncio.run(scrape("ranks")))


def test_one_site_alone_answers_at_the_root() -> None:
    with ServerThread(Server(Site([busy()]))) as alone:
        assert requests.get(alone.url(), timeout=10).text.count("vllm:num_requests_running{") == 1


def test_virtual_time_can_pass_faster_than_real_time() -> None:
    engine = busy()
    with ServerThread(Server(Site([engine])), engine.advance, factor=10_000.0) as alone:
        before = requests.get(alone.url(), timeout=10).text
        deadline = time.monotonic() + 10
        while requests.get(alone.url(), timeout=10).text == before:
            assert time.monotonic() < deadline
    assert engine.clock > 600
