"""The client keeps connections, names, secrets and slots the way a fleet needs it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import hostile
import pytest

from kvcache_exporter.model import Credentials, Problem, Scrape, Target
from kvcache_exporter.scrape import Client
from kvcache_exporter.scrape.endpoint import check_address, endpoint
from kvcache_exporter.scrape.reasons import ScrapeError
from kvcache_exporter.scrape.resolver import Resolver

T = TypeVar("T")


def run(use: Callable[[Client], Awaitable[T]], **kwargs: object) -> T:
    async def main() -> T:
        client = Client(**{"timeout_seconds": 2.0, **kwargs})  # type: ignore[arg-type]
        try:
            return await use(client)
        finally:
            await client.close()

    return asyncio.run(main())


def fetch(target: Target, **kwargs: object) -> Scrape:
    return run(lambda client: client.fetch(target), **kwargs)


def problem(target: Target, **kwargs: object) -> Problem:
    result = fetch(target, **kwargs)
    assert result.body is None
    assert result.problem is not None
    return result.problem


# --- keep-alive -------------------------------------------------------------------------------


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


# --- what is sent -----------------------------------------------------------------------------


def request_of(target: Target, **kwargs: object) -> bytes:
    seen: list[bytes] = []
    with hostile.serve(hostile.always(hostile.response(), seen)) as server:
        placed = Target(target.name, server.url + target.url, auth=target.auth)
        assert fetch(placed, **kwargs).body == hostile.PAGE
    return seen[0]


def test_the_request_asks_for_plain_text_unencoded() -> None:
    request = request_of(Target("t", "?a=b"))
    assert request.startswith(b"GET /metrics?a=b HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAccept: text/plain;version=0.0.4\r\nAccept-Encoding: identity\r\n" in request
    assert b"Authorization" not in request


def test_a_path_cannot_smuggle_a_second_request() -> None:
    request = request_of(Target("t", "/%0d%0a\x7f x y\u00e4"))
    assert request.startswith(b"GET /metrics/%0d%0a%7F%20x%20y%C3%A4 HTTP/1.1\r\n")
    assert request.count(b"\r\n\r\n") == 1


def test_a_bearer_token_is_read_anew_at_each_scrape(tmp_path: Path) -> None:
    token = tmp_path / "token"
    auth = {"a": Credentials(bearer_file=str(token))}
    token.write_text("first\n")
    assert b"\r\nAuthorization: Bearer first\r\n" in request_of(
        Target("t", "", auth="a"), credentials=auth
    )
    token.write_text("second")
    assert b"\r\nAuthorization: Bearer second\r\n" in request_of(
        Target("t", "", auth="a"), credentials=auth
    )


def test_a_basic_password_comes_from_its_file(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("open sesame\n")
    auth = {"a": Credentials(username="ali", password_file=str(password))}
    request = request_of(Target("t", "", auth="a"), credentials=auth)
    assert b"\r\nAuthorization: Basic YWxpOm9wZW4gc2VzYW1l\r\n" in request


@pytest.mark.parametrize("content", ["", "two\nlines", "\x00", None, b"\xff\xfe"])
def test_a_broken_credentials_file_is_named_and_never_quoted(
    tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "token"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        file.write_text(content)
    found = problem(
        Target("t", "http://127.0.0.1:1/metrics", auth="a"),
        credentials={"a": Credentials(bearer_file=str(file))},
    )
    assert found.code == "credentials"
    assert str(file) in found.text
    assert "lines" not in found.text.replace("more than one line", "")


def test_an_unknown_credentials_name_is_named() -> None:
    found = problem(Target("t", "http://127.0.0.1:1/metrics", auth="nobody"))
    assert found.code == "credentials"
    assert "'nobody'" in found.text


def test_an_unreadable_ca_file_is_named(tmp_path: Path) -> None:
    found = problem(
        Target("t", "https://127.0.0.1:1/metrics", auth="a"),
        credentials={"a": Credentials(ca_file=str(tmp_path / "ca.pem"))},
    )
    assert found.code == "credentials"
    assert "ca.pem" in found.text


# --- where it may connect ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://h/metrics",
        "unix:/run/x",
        "h:8000/metrics",
        "http:///metrics",
        "http://h:99999/metrics",
        "http://user:secret@h/metrics",
        "http://[::1/metrics",
        "",
        "http://h/" + "x" * 9000,
    ],
)
def test_a_url_that_is_not_a_plain_http_one_is_refused(url: str) -> None:
    found = problem(Target("t", url))
    assert found.code == "url"
    assert "secret" not in found.text


@pytest.mark.parametrize(
    ("address", "literal", "discovered", "allowed"),
    [
        ("10.0.0.7", True, True, True),
        ("127.0.0.1", True, False, True),
        ("127.0.0.1", True, True, False),
        ("::1", False, True, False),
        ("::ffff:127.0.0.1", False, True, False),
        ("169.254.169.254", True, True, False),
        ("169.254.169.254", False, False, False),
        ("::ffff:169.254.169.254", False, False, False),
        ("169.254.169.254", True, False, True),
        ("fe80::1%eth0", False, False, False),
        ("224.0.0.1", False, False, False),
        ("0.0.0.0", False, False, False),
        ("fd00::7", False, True, True),
    ],
)
def test_discovery_may_not_name_an_address_of_this_host_or_a_metadata_service(
    address: str, literal: bool, discovered: bool, allowed: bool
) -> None:
    expected = nullcontext() if allowed else pytest.raises(ScrapeError, match="discovery may not")
    with expected:
        check_address(address, "h:1", literal=literal, discovered=discovered)


def test_the_resolved_address_is_what_is_checked() -> None:
    target = Target("t", "http://innocent.test/metrics")
    found = problem(target, resolver=Resolver(lambda _: ["169.254.169.254"]))
    assert found.code == "forbidden_address"
    assert "169.254.169.254" in found.text


def test_an_ipv6_host_keeps_its_brackets() -> None:
    found = endpoint("https://[2001:db8::1]/metrics")
    assert (found.host, found.where, found.tls) == ("2001:db8::1", "[2001:db8::1]:443", True)


# --- names ------------------------------------------------------------------------------------


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


# --- the shape of a result --------------------------------------------------------------------


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
