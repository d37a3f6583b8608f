"""The filtered route is used only where it provably says the same, and left when it stops to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import hostile
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kvcache_exporter.model import Sample, Scrape, Target
from kvcache_exporter.scrape import Client, FilteredRoute, filtered
from kvcache_exporter.scrape.filtered import ATTEMPTS, Series, unexplained

WANTED = (
    "vllm:num_requests_running",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:ttft_seconds_count",
    "vllm:not_in_this_version",
)


def parse(body: bytes) -> list[Sample]:
    families = text_string_to_metric_families(body.decode())
    return [
        Sample(one.name, one.labels, one.value)
        for family in families
        for one in family.samples
        if one.name in WANTED
    ]


@dataclass
class Engine:
    """A registry like vLLM's, served like vLLM does: `/metrics` plain, `/metrics/` by name."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    paths: list[str] = field(default_factory=list)
    change: Callable[[Engine, str, list[str]], bytes | None] = lambda *_: None

    def __post_init__(self) -> None:
        labels = ["engine"]
        self.running = Gauge("vllm:num_requests_running", "r", labels, registry=self.registry)
        self.usage = Gauge("vllm:kv_cache_usage_perc", "u", labels, registry=self.registry)
        self.tokens = Counter("vllm:prompt_tokens", "p", labels, registry=self.registry)
        self.ttft = Histogram("vllm:ttft_seconds", "t", labels, registry=self.registry)
        for engine in "01":
            self.running.labels(engine).set(2)
            self.usage.labels(engine).set(0.5)
            self.tokens.labels(engine).inc(7)
            self.ttft.labels(engine).observe(0.1)

    def page(self, target: str) -> bytes:
        path, _, query = target.partition("?")
        names = parse_qs(query).get("name[]", [])
        changed = self.change(self, path, names)
        if changed is not None:
            return changed
        if path == "/metrics/" and names:
            body: bytes = generate_latest(self.registry.restricted_registry(names))  # type: ignore[arg-type]
        else:
            body = generate_latest(self.registry)
        return hostile.response(body)

    def __call__(self, peer: hostile.Peer) -> None:
        while request := peer.read_request():
            target = request.split(b" ")[1].decode()
            self.paths.append(urlsplit(target).path)
            peer.send(self.page(target))


def scrapes(engine: Engine, times: int) -> list[Scrape]:
    """Scrape once, which is always plain, and then *times* more; return those."""

    async def main() -> list[Scrape]:
        client = Client()
        route = FilteredRoute(client.fetch, WANTED, parse)
        try:
            assert not (await route.fetch(Target("t", server.url))).filtered
            return [await route.fetch(Target("t", server.url)) for _ in range(times)]
        finally:
            await client.close()

    with hostile.serve(engine) as server:
        return asyncio.run(main())


def test_a_proved_route_is_used_and_says_the_same() -> None:
    engine = Engine()
    plain, *filtered = scrapes(engine, 4)
    assert engine.paths == ["/metrics"] * 2 + ["/metrics/", "/metrics"] + ["/metrics/"] * 3
    assert [one.filtered for one in (plain, *filtered)] == [False, True, True, True]
    for one in filtered:
        assert one.body is not None
        assert plain.body is not None
        # The registry keeps the asked-for families in a set, so their order is not the page's.
        assert sorted(map(str, parse(one.body))) == sorted(map(str, parse(plain.body)))
        assert len(one.body) < len(plain.body) / 2


def test_a_family_that_vllm_registers_late_is_found_by_the_next_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filtered, "PROOF_SCRAPES", 3)

    def register(engine: Engine, path: str, names: list[str]) -> None:
        if len(engine.paths) == 5:
            late = Gauge("vllm:not_in_this_version", "late", registry=engine.registry)
            late.set(5)

    found = scrapes(Engine(change=register), 10)
    told = [sample for sample in parse(found[-1].body or b"") if sample.value == 5]
    assert found[-1].filtered
    assert [sample.name for sample in told] == ["vllm:not_in_this_version"]


def test_a_later_proof_that_fails_by_chance_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filtered, "PROOF_SCRAPES", 3)
    failed = []

    def fail_once(engine: Engine, path: str, names: list[str]) -> bytes | None:
        is_proof = path == "/metrics/" and engine.paths[-2:] == ["/metrics", "/metrics/"]
        if is_proof and len(engine.paths) > 5 and not failed:
            failed.append(path)
            return hostile.response(b"", status="500 Internal Server Error")
        return None

    found = scrapes(Engine(change=fail_once), 12)
    assert failed
    assert found[-1].filtered


def test_the_first_page_does_not_wait_for_a_proof() -> None:
    engine = Engine()
    scrapes(engine, 0)
    assert engine.paths == ["/metrics"]


def asked_of(engine: Engine, page: Callable[[bytes], bytes] = lambda plain: plain) -> set[str]:
    """The names that the filtered route asks an engine for whose plain page was changed."""
    asked: list[list[str]] = []

    def note(engine: Engine, path: str, names: list[str]) -> bytes | None:
        if names:
            asked.append(names)
            return None
        return hostile.response(page(generate_latest(engine.registry)))

    engine.change = note
    scrapes(engine, 3)
    return set(asked[-1])


def test_only_names_that_the_page_knows_are_asked_for() -> None:
    assert asked_of(Engine()) == {*WANTED} - {"vllm:not_in_this_version"}


def test_a_family_that_has_no_sample_yet_is_asked_for() -> None:
    engine = Engine()
    Gauge("vllm:not_in_this_version", "n", ["engine"], registry=engine.registry)
    assert asked_of(engine) == {*WANTED}


def test_a_page_that_declares_nothing_is_asked_for_everything() -> None:
    bare = re.compile(rb"^#.*\n", re.MULTILINE)
    assert asked_of(Engine(), lambda plain: bare.sub(b"", plain)) == {*WANTED}


def test_a_busy_engine_can_still_be_proved() -> None:
    def work(engine: Engine, path: str, names: list[str]) -> None:
        engine.tokens.labels("0").inc(11)
        engine.running.labels("1").inc()

    assert [one.filtered for one in scrapes(Engine(change=work), 3)] == [False, True, True]


def test_a_gauge_that_moved_there_and_back_is_looked_at_again() -> None:
    calls = 0

    def flicker(engine: Engine, path: str, names: list[str]) -> None:
        nonlocal calls
        calls += 1
        engine.running.labels("0").set(9 if calls == 3 else 2)

    assert [one.filtered for one in scrapes(Engine(change=flicker), 3)] == [False, False, True]


def empty_when_filtered(engine: Engine, path: str, names: list[str]) -> bytes | None:
    return hostile.response(b"") if names else None


def not_found_when_filtered(engine: Engine, path: str, names: list[str]) -> bytes | None:
    return hostile.response(b"{}", status="404 Not Found") if names else None


def redirected_when_filtered(engine: Engine, path: str, names: list[str]) -> bytes | None:
    headers = "Location: /metrics\r\n"
    return hostile.response(b"", status="307 X", headers=headers) if names else None


def filter_ignored(engine: Engine, path: str, names: list[str]) -> bytes | None:
    return hostile.response(generate_latest(engine.registry)) if names else None


def one_engine_missing(engine: Engine, path: str, names: list[str]) -> bytes | None:
    body = generate_latest(engine.registry.restricted_registry(names))  # type: ignore[arg-type]
    lines = [line for line in body.splitlines(True) if b'engine="1"' not in line]
    return hostile.response(b"".join(lines)) if names else None


def counters_behind(engine: Engine, path: str, names: list[str]) -> bytes | None:
    body = generate_latest(engine.registry.restricted_registry(names))  # type: ignore[arg-type]
    return hostile.response(body.replace(b" 7.0\n", b" 6.0\n")) if names else None


def gauges_frozen(engine: Engine, path: str, names: list[str]) -> bytes | None:
    body = generate_latest(engine.registry.restricted_registry(names))  # type: ignore[arg-type]
    return hostile.response(body.replace(b" 0.5\n", b" 0.1\n")) if names else None


@pytest.mark.parametrize(
    "change",
    [
        empty_when_filtered,
        not_found_when_filtered,
        redirected_when_filtered,
        filter_ignored,
        one_engine_missing,
        counters_behind,
        gauges_frozen,
    ],
)
def test_a_route_that_differs_is_given_up_and_costs_no_scrape(
    change: Callable[[Engine, str, list[str]], bytes | None],
) -> None:
    engine = Engine(change=change)
    results = scrapes(engine, ATTEMPTS + 3)
    assert all(one.body is not None and not one.filtered for one in results)
    assert len(parse(results[-1].body or b"")) == 8
    assert engine.paths[-3:] == ["/metrics"] * 3


def test_a_name_that_goes_missing_later_has_the_route_proved_again() -> None:
    calls = 0

    def loses_a_family(engine: Engine, path: str, names: list[str]) -> bytes | None:
        nonlocal calls
        calls += bool(names)
        kept = [name for name in names if "tokens" not in name] if calls > 2 else names
        body = generate_latest(engine.registry.restricted_registry(kept))  # type: ignore[arg-type]
        return hostile.response(body) if names else None

    results = scrapes(Engine(change=loses_a_family), 4)
    assert [one.filtered for one in results] == [False, True, False, False]
    assert all(len(parse(one.body or b"")) == 8 for one in results)


def test_a_series_that_appears_later_is_no_reason_for_doubt() -> None:
    calls = 0

    def grows(engine: Engine, path: str, names: list[str]) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            engine.tokens.labels("2").inc()

    results = scrapes(Engine(change=grows), 4)
    assert [one.filtered for one in results] == [False, True, True, True]
    assert len(parse(results[-1].body or b"")) == 9


def test_a_failed_scrape_makes_the_next_one_prove_the_route_anew() -> None:
    calls = 0

    def restarts(engine: Engine, path: str, names: list[str]) -> bytes | None:
        nonlocal calls
        calls += 1
        return hostile.response(b"", status="503 X") if calls == 6 else None

    engine = Engine(change=restarts)
    results = scrapes(engine, 6)
    assert [one.body is not None for one in results] == [True, True, False, True, True, True]
    assert [one.filtered for one in results] == [False, True, True, False, False, True]


@pytest.mark.parametrize("url", ["http://h/other", "http://h/metrics?x=y", "http://h/"])
def test_a_url_that_is_not_vllms_own_is_left_alone(url: str) -> None:
    asked: list[str | None] = []

    async def fetch(target: Target, path: str | None) -> Scrape:
        asked.append(path)
        return Scrape(target.name, 0.0, 0.0, b"a 1\n")

    asyncio.run(FilteredRoute(fetch, WANTED, parse).fetch(Target("t", url)))
    assert asked == [None]


def test_too_many_names_for_a_request_line_switch_the_filter_off() -> None:
    asked: list[str | None] = []

    async def fetch(target: Target, path: str | None) -> Scrape:
        asked.append(path)
        return Scrape(target.name, 0.0, 0.0, b"a 1\n")

    names = [f"a_long_name_of_a_metric_{number}" for number in range(500)]
    asyncio.run(FilteredRoute(fetch, names, parse).fetch(Target("t", "http://h/metrics")))
    assert asked == [None]


def test_a_series_only_on_the_filtered_page_disproves_it() -> None:
    one: Series = ("a", frozenset())
    two: Series = ("b", frozenset())
    assert unexplained({one: 1}, {one: 1, two: 1}, {one: 1}) is None
    assert unexplained({one: 1}, {one: 1, two: 1}, {one: 1, two: 1}) == frozenset()
    assert unexplained({}, {}, {}) is None
