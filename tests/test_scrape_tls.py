"""Certificates that do not hold are refused, and the problem says why."""

from __future__ import annotations

import ssl
from pathlib import Path

import hostile
import pytest
from bad_target import problem, scrape

from kvcache_exporter.model import Credentials

TLS = Path(__file__).parent / "data" / "tls"


def tls_server(name: str, *, client_ca: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}.key")
    if client_ca:
        context.load_verify_locations(TLS / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


PAGE = hostile.answer(hostile.response())
CA = Credentials(ca_file=str(TLS / "ca.pem"))


@pytest.mark.parametrize(
    ("name", "credentials", "words"),
    [
        ("expired", CA, "has expired"),
        ("other", CA, "IP address mismatch"),
        ("server", Credentials(), "unable to get local issuer certificate"),
    ],
)
def test_a_certificate_that_does_not_hold_is_refused(
    name: str, credentials: Credentials, words: str
) -> None:
    with hostile.serve(PAGE, tls_server(name)) as server:
        found = problem(server, tls=credentials)
    assert found.code == "tls"
    assert words in found.text


def test_tls_with_the_right_ca_gives_the_page() -> None:
    with hostile.serve(PAGE, tls_server("server")) as server:
        assert scrape(server, tls=CA).body == hostile.PAGE


def test_skipping_verification_is_possible_but_explicit() -> None:
    with hostile.serve(PAGE, tls_server("expired")) as server:
        assert scrape(server, tls=Credentials(insecure_skip_verify=True)).body == hostile.PAGE


def test_another_server_name_can_be_expected() -> None:
    credentials = Credentials(ca_file=CA.ca_file, server_name="other.invalid")
    with hostile.serve(PAGE, tls_server("other")) as server:
        assert scrape(server, tls=credentials).body == hostile.PAGE


def test_a_client_certificate_is_shown_where_one_is_configured() -> None:
    client = Credentials(
        ca_file=CA.ca_file,
        cert_file=str(TLS / "client.pem"),
        key_file=str(TLS / "client.key"),
    )
    with hostile.serve(PAGE, tls_server("server", client_ca=True)) as server:
        assert scrape(server, tls=client).body == hostile.PAGE


def test_a_missing_client_certificate_is_named() -> None:
    with hostile.serve(PAGE, tls_server("server", client_ca=True)) as server:
        found = problem(server, tls=CA)
    assert found.code == "tls"
    assert "client certificate" in found.text


def test_tls_on_a_plain_port_says_so() -> None:
    def bad_request(peer: hostile.Peer) -> None:
        peer.sock.recv(65536)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with hostile.serve(bad_request) as server:
        server.url = server.url.replace("http:", "https:")
        found = problem(server, tls=CA)
    assert found.code == "tls"
    assert "http://" in found.text


def test_a_server_that_never_finishes_the_handshake_times_out() -> None:
    with hostile.serve(hostile.silent) as server:
        server.url = server.url.replace("http:", "https:")
        found = problem(server, tls=CA)
    assert found.code == "timeout"
    assert "connecting to 127.0.0.1" in found.text
