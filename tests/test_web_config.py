"""TLS and users of our own port: what is accepted or refused, and that changes take effect."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import shutil
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.schema import OperatorError
from kvcache_exporter.web import Latest, Page, Server, pages_of
from kvcache_exporter.web.security import Security
from kvcache_exporter.web.users import MAX_WRONG, Users, credentials, digest

DATA = Path(__file__).parent / "data"
TLS = DATA / "tls"
GOOD = sorted((DATA / "web_config" / "good").glob("*.yml"))
BAD = sorted((DATA / "web_config" / "bad").glob("*.yml"))
PASSWORD = "open sesame"


def basic(name: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}


# --- the file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_accepted(path: Path) -> None:
    security = Security(path)
    assert (security.tls() is not None) is ("tls_server_config" in path.read_text())
    security.close()


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_refused_with_every_mistake_named(path: Path) -> None:
    lines = path.read_text().splitlines()
    expected = [line.removeprefix("# expect: ") for line in lines if line.startswith("# expect: ")]
    with pytest.raises(OperatorError) as caught:
        Security(path)
    text = str(caught.value)
    assert expected
    assert [words for words in expected if words not in text] == []
    assert "sesame" not in text
    assert "123456789" not in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"web\.yml: cannot be read: No such file"):
        Security(tmp_path / "web.yml")


def test_who_has_to_show_who_they_are_is_known() -> None:
    wanted = {"users": True, "client_certificates": True, "tls": False, "empty": False}
    for name, authenticates in wanted.items():
        security = Security(DATA / "web_config" / "good" / f"{name}.yml")
        assert security.authenticates is authenticates
        security.close()


# --- users ------------------------------------------------------------------------------------


class Slow:
    """A stand-in for bcrypt that counts: hash = password reversed."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.at_once = 0
        self._running = 0
        self._lock = threading.Lock()

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        with self._lock:
            self._running += 1
            self.at_once = max(self.at_once, self._running)
            self.asked.append(password)
        time.sleep(0.005)
        with self._lock:
            self._running -= 1
        return password[::-1] == hashed


def ask(users: Users, *requests: Mapping[str, str]) -> list[bool]:
    async def main() -> list[bool]:
        return await asyncio.gather(*(users.may(request) for request in requests))

    try:
        return asyncio.run(main())
    finally:
        users.close()


def test_only_the_right_name_with_the_right_password_may() -> None:
    check = Slow()
    users = Users({"ali": "abc", "baba": "xyz"}, check)
    requests = [
        basic("ali", "cba"),
        basic("ali", "zyx"),
        basic("baba", "zyx"),
        basic("nobody", "cba"),
        basic("", "cba"),
        {},
        {"authorization": "Bearer cba"},
        {"authorization": "Basic !"},
        {"authorization": "Basic YWxp"},
    ]
    assert ask(users, *requests) == [True, False, True, *[False] * 6]


def test_real_bcrypt_hashes_are_verified() -> None:
    text = (DATA / "web_config" / "good" / "users.yml").read_text()
    users = Users({"ali": text.split()[-1]})
    requests = [
        basic("ali", PASSWORD),
        basic("ali", "no"),
        basic("ali", "\0"),
        basic("al", PASSWORD),
    ]
    assert ask(users, *requests) == [True, False, False, False]


def test_without_users_everybody_may() -> None:
    assert ask(Users({}), {}) == [True]


def test_verdicts_are_remembered_and_made_one_at_a_time() -> None:
    check = Slow()
    right, wrong = basic("ali", "cba"), basic("ali", "no")
    verdicts = ask(Users({"ali": "abc"}, check), *[right, wrong] * 20)
    assert verdicts == [True, False] * 20
    assert sorted(check.asked) == [b"cba", b"no"]
    assert check.at_once == 1


def test_an_unknown_name_costs_a_verification_too() -> None:
    check = Slow()
    assert ask(Users({"ali": "abc"}, check), basic("nobody", "no")) == [False]
    assert check.asked == [b"no"]


def test_a_flood_of_wrong_passwords_does_not_displace_the_right_one() -> None:
    check = Slow()
    flood = [basic("ali", f"wrong {number}") for number in range(MAX_WRONG + 20)]
    users = Users({"ali": "abc"}, check)
    assert ask(users, basic("ali", "cba"), *flood, basic("ali", "cba")).count(True) == 2
    assert check.asked.count(b"cba") == 1
    assert len(users._wrong) == MAX_WRONG


def test_a_right_password_is_answered_while_others_wait_for_a_verification() -> None:
    check = Slow()
    users = Users({"ali": "abc"}, check)

    async def main() -> int:
        assert await users.may(basic("ali", "cba"))
        flood = [asyncio.ensure_future(users.may(basic("ali", str(n)))) for n in range(50)]
        await asyncio.sleep(0)
        assert await users.may(basic("ali", "cba"))
        waiting = sum(not one.done() for one in flood)
        await asyncio.gather(*flood)
        return waiting

    assert asyncio.run(main()) == 50
    users.close()


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_no_two_lists_of_parts_have_the_same_digest(one: list[bytes], other: list[bytes]) -> None:
    assert (digest(*one) == digest(*other)) is (one == other)


@given(st.text(alphabet=st.characters(exclude_characters=":", codec="utf-8")), st.binary())
def test_names_and_passwords_survive_the_header(name: str, password: bytes) -> None:
    token = b64encode(name.encode() + b":" + password).decode()
    assert credentials(f"basic {token}") == (name, password)


@given(st.text())
def test_any_header_is_credentials_or_none(header: str) -> None:
    found = credentials(f"Basic {header}")
    assert found is None or isinstance(found[1], bytes)


# --- in force ---------------------------------------------------------------------------------


@contextmanager
def serving(path: Path) -> Iterator[Server]:
    server = Server(
        "127.0.0.1:0", pages_of(Latest({"/metrics": Page.of(b"up 1\n")})), gate=Security(path)
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


def status(
    server: Server, context: ssl.SSLContext | None = None, headers: Mapping[str, str] | None = None
) -> int:
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    else:
        connection = http.client.HTTPSConnection(
            "localhost", server.port, timeout=10, context=context
        )
    try:
        connection.request("GET", "/metrics", headers=dict(headers or {}))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(TLS / "ca.pem"))


def test_users_have_to_show_their_password() -> None:
    with serving(DATA / "web_config" / "good" / "users.yml") as server:
        assert status(server) == 401
        assert status(server, headers=basic("ali", "no")) == 401
        assert status(server, headers=basic("ali", PASSWORD)) == 200


def test_clients_have_to_show_a_certificate_where_one_is_required() -> None:
    with serving(DATA / "web_config" / "good" / "client_certificates.yml") as server:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            status(server, trusting())
        known = trusting()
        known.load_cert_chain(TLS / "client.pem", TLS / "client.key")
        assert status(server, known) == 200


def test_configured_headers_are_on_every_response() -> None:
    with serving(DATA / "web_config" / "good" / "headers.yml") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/nothing")
        answer = connection.getresponse()
        answer.read()
        connection.close()
    assert answer.headers["X-Frame-Options"] == "deny"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def replace(path: Path, text: str) -> None:
    """Write as a careful writer does: whole, by renaming."""
    other = path.with_suffix(".new")
    other.write_text(text)
    os.replace(other, path)


def test_new_users_take_effect_and_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "web.yml"
    users = (DATA / "web_config" / "good" / "users.yml").read_text()
    path.write_text("")
    with serving(path) as server, caplog.at_level(logging.ERROR):
        assert status(server) == 200
        replace(path, users)
        assert status(server) == 401
        assert status(server, headers=basic("ali", PASSWORD)) == 200
        replace(path, users + "basic_auth_user: {}\n")
        assert status(server) == 401
        assert status(server, headers=basic("ali", PASSWORD)) == 200
        path.unlink()
        assert status(server) == 401
    assert len(caplog.records) == 2
    assert "did you mean basic_auth_users?" in caplog.text


def test_a_renewed_certificate_takes_effect(tmp_path: Path) -> None:
    for name in ("server.pem", "server.key"):
        shutil.copy(TLS / name, tmp_path / name)
    path = tmp_path / "web.yml"
    path.write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    with serving(path) as server:
        assert status(server, trusting()) == 200
        for name in ("pem", "key"):
            replace(tmp_path / f"server.{name}", (TLS / f"other.{name}").read_text())
        with pytest.raises(ssl.SSLCertVerificationError):
            status(server, trusting())
