"""The client keeps connections, slots and files the way a fleet needs it."""

from __future__ import annotations

import asyncio
import threading

import hostile
import pytest
from scraping import fetch, problem, run

from kvcache_exporter.model import Scrape, Target
from kvcache_exporter.scrape import Client


def scrapes(server: hostile.Server, times: int) -> list[Scrape]:
    async def use(client: Client) -> list[Scrape]:
        results = []
        for _ in range(times):
            results.append(await client.fetch(Target("t", server.url)))
            await asyncio.sleep(0.02)  # lets a close by the peer arrive
        return results

    return run(use)


def test_one_connection_serves_many_scrapes() -> None:
    with hostile.serve(hostile.always(hostile.response())) as server:
        assert all(one.body == hostile.PAGE for one in scrapes(server, 5))
        assert server.connections == 1


def test_a_connection_closed_while_idle_costs_no_scrape() -> None:
    with hostile.serve(hostile.answer(hostile.response())) as server:
        assert all(one.body == hostile.PAGE for one in scrapes(server, 3))
        assert server.connections == 3


def test_a_reused_connection_that_dies_before_the_first_byte_is_tried_once_more() -> None:
    def once_then_hang_up(peer: hostile.Peer) -> None:
        peer.read_request()
        peer.send(hostile.response())
        peer.read_request()

    with hostile.serve(once_then_hang_up) as server:
        assert all(one.body == hostile.PAGE for one in scrapes(server, 3))
        assert server.connections == 3


def test_a_reused_connection_that_dies_after_the_first_byte_is_not_tried_again() -> None:
    def once_then_cut(peer: hostile.Peer) -> None:
        peer.read_request()
        peer.send(hostile.response())
        peer.read_request()
        peer.send(hostile.response(length="500"))

    with hostile.serve(once_then_cut) as server:
        first, second = scrapes(server, 2)
        assert first.body == hostile.PAGE
        assert second.problem is not None
        assert second.problem.code == "truncated"
        assert server.connections == 1


def test_a_fresh_connection_that_dies_is_not_tried_again() -> None:
    with hostile.serve(hostile.hang_up) as server:
        assert problem(Target("t", server.url)).code == "connection_reset"
        assert server.connections == 1


def test_a_page_that_is_refused_does_not_leak_its_connection() -> None:
    with hostile.serve(hostile.always(hostile.response(b"\n"))) as server:
        assert all(one.body is None for one in scrapes(server, 3))
        assert server.connections == 1


def test_bytes_nobody_asked_for_close_an_idle_connection() -> None:
    def answers_twice(peer: hostile.Peer) -> None:
        while peer.read_request():
            peer.send(hostile.response())
            peer.wait(0.005)
            peer.send(hostile.response(b"stale 1\n"))

    with hostile.serve(answers_twice) as server:
        assert all(one.body == hostile.PAGE for one in scrapes(server, 3))
        assert server.connections == 3


def test_connections_of_targets_that_are_gone_are_closed() -> None:
    left = threading.Event()

    def behave(peer: hostile.Peer) -> None:
        hostile.always(hostile.response())(peer)
        left.set()

    async def use(client: Client) -> bool:
        await client.fetch(Target("t", server.url))
        client.retain(["another"])
        return await asyncio.to_thread(left.wait, 5)

    with hostile.serve(behave) as server:
        assert run(use)


def test_a_target_whose_address_changed_does_not_reuse_the_old_connection() -> None:
    async def use(client: Client) -> list[bytes | None]:
        return [(await client.fetch(Target("t", one.url))).body for one in (old, new)]

    with (
        hostile.serve(hostile.always(hostile.response(b"old 1\n"))) as old,
        hostile.serve(hostile.always(hostile.response(b"new 1\n"))) as new,
    ):
        assert run(use) == [b"old 1\n", b"new 1\n"]


def test_no_more_scrapes_run_at_once_than_there_are_slots_and_none_times_out_waiting() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def behave(peer: hostile.Peer) -> None:
        nonlocal running, most
        peer.read_request()
        with lock:
            running += 1
            most = max(most, running)
        peer.wait(0.05)
        with lock:
            running -= 1
        peer.send(hostile.response())

    async def use(client: Client) -> list[Scrape]:
        targets = [Target(f"t{number}", server.url) for number in range(40)]
        return await asyncio.gather(*(client.fetch(target) for target in targets))

    with hostile.serve(behave) as server:
        results = run(use, concurrency=4, timeout_seconds=0.4)
    assert all(one.body == hostile.PAGE for one in results)
    assert most <= 4


def test_a_fleet_of_hanging_targets_takes_no_slot_for_longer_than_its_timeout() -> None:
    async def use(client: Client) -> Scrape:
        hanging = [client.fetch(Target(f"h{i}", bad.url)) for i in range(8)]
        *_, last = await asyncio.gather(*hanging, client.fetch(Target("good", good.url)))
        return last

    with (
        hostile.serve(hostile.hang) as bad,
        hostile.serve(hostile.always(hostile.response())) as good,
    ):
        assert run(use, concurrency=4, timeout_seconds=0.2).body == hostile.PAGE


@pytest.mark.parametrize(("limit", "connections"), [(212, 5 + 3), (-1, 5)])
def test_idle_connections_stop_where_the_file_limit_would_be_met(
    monkeypatch: pytest.MonkeyPatch, limit: int, connections: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))

    async def use(client: Client) -> None:
        for _ in range(2):
            await asyncio.gather(*(client.fetch(Target(f"t{i}", server.url)) for i in range(5)))

    with hostile.serve(hostile.always(hostile.response())) as server:
        run(use, concurrency=10)
        assert server.connections == connections


def test_the_scrape_is_stamped_by_the_given_clock() -> None:
    with hostile.serve(hostile.answer(hostile.response())) as server:
        assert fetch(Target("t", server.url), clock=lambda: 1234.5).time == 1234.5


def test_stopping_in_the_middle_of_a_scrape_leaves_no_connection() -> None:
    left = threading.Event()

    def behave(peer: hostile.Peer) -> None:
        peer.read_request()
        peer.sock.recv(1)
        left.set()

    async def use(client: Client) -> None:
        task = asyncio.ensure_future(client.fetch(Target("t", server.url)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(left.wait, 5)

    with hostile.serve(behave) as server:
        run(use)
