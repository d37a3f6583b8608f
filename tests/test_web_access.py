"""Who may read, and where the server listens."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from web_serving import METRICS, get, latest, serving

from kvcache_exporter.web import Server, pages_of
from kvcache_exporter.web.gate import OpenGate
from kvcache_exporter.web.listen import is_exposed, split

TLS = Path(__file__).parent / "data" / "tls"


class Only(OpenGate):
    """Lets in who shows one password."""

    authenticates = True
    headers: Mapping[str, str] = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}

    async def may(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == "Basic eDp5"


def test_without_credentials_only_the_probes_answer() -> None:
    with serving(gate=Only()) as server:
        for path in ("/metrics", "/", "/nothing", "/-/reload"):
            answer = get(server, path)
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
            assert answer.headers["X-Frame-Options"] == "DENY"
        assert get(server, "/-/healthy").status == 200
        assert get(server, "/-/ready").status == 200
        assert get(server, "/metrics", headers={"Authorization": "Basic eDp5"}).status == 200


def test_a_gate_that_fails_lets_nobody_in() -> None:
    class Broken(OpenGate):
        async def may(self, headers: Mapping[str, str]) -> bool:
            raise RuntimeError

    with serving(gate=Broken()) as server, pytest.raises(http.client.HTTPException):
        get(server, "/metrics")


def test_tls_is_asked_for_at_each_connection() -> None:
    asked = []

    class Tls(OpenGate):
        def tls(self) -> ssl.SSLContext:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
            asked.append(context)
            return context

    client = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    with serving(gate=Tls()) as server:
        for _ in range(2):
            connection = http.client.HTTPSConnection(
                "localhost", server.port, timeout=10, context=client
            )
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == METRICS
            connection.close()
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("listen", "host", "port", "exposed"),
    [
        ("127.0.0.1:10158", "127.0.0.1", 10158, False),
        ("[::1]:10158", "::1", 10158, False),
        ("localhost:0", "localhost", 0, False),
        (":10158", "", 10158, True),
        ("0.0.0.0:1", "0.0.0.0", 1, True),
        ("[::]:1", "::", 1, True),
        ("10.0.0.5:1", "10.0.0.5", 1, True),
        ("host.test:1", "host.test", 1, True),
    ],
)
def test_a_listen_address_is_taken_apart(listen: str, host: str, port: int, exposed: bool) -> None:
    assert split(listen) == (host, port)
    assert is_exposed(listen) is exposed


@pytest.mark.parametrize("listen", ["", "10158", "h:", "h:x", "h:70000", "h:-1", "h:\u0661"])
def test_a_malformed_listen_address_says_what_was_expected(listen: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:10158"):
        split(listen)


def test_a_taken_port_says_what_to_do() -> None:
    with serving() as first:
        second = Server(f"127.0.0.1:{first.port}", pages_of(latest()))
        with pytest.raises(OSError, match="is another exporter running there"):
            second.start()
        second.stop()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::1]"])
def test_every_kind_of_address_can_be_listened_on(host: str) -> None:
    server = Server(f"{host}:0", pages_of(latest()))
    try:
        server.start()
    except OSError:
        pytest.skip("no IPv6 here")
    try:
        where = "::1" if host == "[::1]" else "127.0.0.1"
        with socket.create_connection((where, server.port), timeout=10) as client:
            client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        server.stop()


def test_an_exposed_address_without_authentication_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        for listen, gate in (("127.0.0.1:0", OpenGate()), ("0.0.0.0:0", Only())):
            server = Server(listen, pages_of(latest()), gate=gate)
            server.start()
            server.stop()
        assert caplog.text == ""
        server = Server("0.0.0.0:0", pages_of(latest()))
        server.start()
        server.stop()
    assert "0.0.0.0:0 is open to other machines without authentication" in caplog.text


def test_a_server_that_was_never_started_can_be_stopped() -> None:
    Server("127.0.0.1:0", pages_of(latest())).stop()
