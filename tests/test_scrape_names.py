"""Names that do not resolve, hang or move harm their own target only."""

from __future__ import annotations

import asyncio
import socket
import threading

import hostile
from scraping import problem, run

from kvcache_exporter.model import Scrape, Target
from kvcache_exporter.scrape import Client
from kvcache_exporter.scrape.resolver import Resolver


def test_a_name_that_does_not_resolve_is_a_dns_problem() -> None:
    def lookup(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    found = problem(Target("t", "http://nowhere.test/metrics"), resolver=Resolver(lookup))
    assert found.code == "dns"
    assert "nowhere.test:80" in found.text


def test_a_hung_name_server_is_a_dns_problem_and_other_names_still_resolve() -> None:
    release = threading.Event()

    def lookup(host: str) -> list[str]:
        if host == "slow.test":
            release.wait(hostile.LIMIT_SECONDS)
        return ["127.0.0.1"]

    async def use(client: Client) -> list[Scrape]:
        slow = [client.fetch(Target(f"s{i}", "http://slow.test/metrics")) for i in range(10)]
        good = Target("good", f"http://good.test:{server.port}/metrics")
        return await asyncio.gather(*slow, client.fetch(good))

    with hostile.serve(hostile.always(hostile.response())) as server:
        *slow, good = run(use, resolver=Resolver(lookup, wait_seconds=0.2))
        release.set()
    assert good.body == hostile.PAGE
    for one in slow:
        assert one.problem is not None
        assert one.problem.code == "dns"


def test_the_last_good_address_is_kept_while_dns_fails() -> None:
    calls = 0

    def lookup(_: str) -> list[str]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
        return ["127.0.0.1"]

    async def use(client: Client) -> list[Scrape]:
        target = Target("t", f"http://flaky.test:{server.port}/metrics")
        return [await client.fetch(target) for _ in range(3)]

    with hostile.serve(hostile.answer(hostile.response())) as server:
        results = run(use, resolver=Resolver(lookup, ttl_seconds=0.0))
    assert all(one.body == hostile.PAGE for one in results)
    assert calls == 3


def test_every_address_of_a_name_is_tried_and_the_good_one_goes_first_next_time() -> None:
    resolver = Resolver(lambda _: ["127.0.0.2", "127.0.0.1"])

    async def use(client: Client) -> list[str]:
        scraped = await client.fetch(Target("t", f"http://both.test:{server.port}/metrics"))
        assert scraped.body == hostile.PAGE
        return await resolver.resolve("both.test")

    with hostile.serve(hostile.answer(hostile.response())) as server:
        assert run(use, resolver=resolver) == ["127.0.0.1", "127.0.0.2"]


def test_many_scrapes_of_one_name_ask_once() -> None:
    asked: list[str] = []

    def lookup(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async def use(client: Client) -> list[Scrape]:
        url = f"http://one.test:{server.port}/metrics"
        return await asyncio.gather(*(client.fetch(Target(f"t{i}", url)) for i in range(20)))

    with hostile.serve(hostile.always(hostile.response())) as server:
        results = run(use, resolver=Resolver(lookup))
    assert all(one.body == hostile.PAGE for one in results)
    assert asked == ["one.test"]
