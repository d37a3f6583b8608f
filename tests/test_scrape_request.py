"""What the client sends, with whose credentials, and where it may connect."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import hostile
import pytest
from scraping import fetch, problem

from kvcache_exporter.model import Credentials, Target
from kvcache_exporter.scrape.endpoint import check_address, endpoint
from kvcache_exporter.scrape.reasons import ScrapeError
from kvcache_exporter.scrape.resolver import Resolver


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
