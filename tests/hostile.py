"""Servers on loopback that do what real ones do at their worst; each is bounded and cleans up.

    with hostile.serve(hostile.drip(b"HTTP/1.1 200 OK\\r\\n")) as url: ...

A behaviour is a function of one accepted connection. Nothing sleeps: waiting ends when the
`with` block does.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PAGE = b"# TYPE up gauge\nup 1\n"
LIMIT_SECONDS = 20.0
"""No behaviour goes on for longer, whatever a test forgets."""


@dataclass
class Peer:
    """One accepted connection."""

    sock: socket.socket
    number: int
    over: threading.Event

    def read_request(self) -> bytes:
        """Read one request head; b"" once the client has left."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = self.sock.recv(65536)
            if not data:
                return b""
            head += data
        return head

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def wait(self, seconds: float = LIMIT_SECONDS) -> bool:
        """Wait for the end of the test or for `seconds`; True at the end."""
        return self.over.wait(seconds)


Behaviour = Callable[[Peer], None]


@dataclass
class Server:
    """A listening socket with a behaviour, and what it has seen."""

    behaviour: Behaviour
    tls: ssl.SSLContext | None = None
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", self.port), backlog=1024)
        self._peers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port = self._socket.getsockname()[1]
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/metrics"

    def run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(client)
            thread = threading.Thread(
                target=self._serve, args=(client, self.connections), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        self._over.set()
        for sock in (self._socket, *self._peers):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(2)

    def _serve(self, client: socket.socket, number: int) -> None:
        client.settimeout(LIMIT_SECONDS)
        sock = client
        with suppress(OSError, ValueError):
            if self.tls is not None:
                sock = self.tls.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
                self._peers.append(sock)
                sock.do_handshake()
            self.behaviour(Peer(sock, number, self._over))
        with suppress(OSError):
            # Closing with unread bytes would reset the connection and discard the answer. Called on
            # the class, to go below TLS.
            socket.socket.shutdown(sock, socket.SHUT_WR)
            while socket.socket.recv(sock, 65536):
                pass
        sock.close()


@contextmanager
def serve(
    behaviour: Behaviour, tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[Server]:
    server = Server(behaviour, tls, port)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(2)


def response(
    body: bytes = PAGE,
    *,
    status: str = "200 OK",
    content_type: str = "text/plain; version=0.0.4",
    length: str | None = None,
    headers: str = "",
) -> bytes:
    """Build a response with a Content-Length; `length` replaces the true one."""
    true = str(len(body)) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {true}\r\n"
    return f"{head}{headers}\r\n".encode("latin-1") + body


def chunked(*chunks: bytes, headers: str = "") -> bytes:
    """Build a chunked response without its end."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n"
    return f"{head}{headers}\r\n".encode() + b"".join(
        b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks
    )


def answer(data: bytes, *, keep_open: bool = False) -> Behaviour:
    """Send `data` for the first request and close, or go silent."""

    def behave(peer: Peer) -> None:
        peer.read_request()
        peer.send(data)
        if keep_open:
            peer.wait()

    return behave


def always(data: bytes, seen: list[bytes] | None = None) -> Behaviour:
    """Send `data` for each request of a kept-alive connection."""

    def behave(peer: Peer) -> None:
        while request := peer.read_request():
            if seen is not None:
                seen.append(request)
            peer.send(data)

    return behave


def hang(peer: Peer) -> None:
    """Accept, read, never answer."""
    peer.read_request()
    peer.wait()


def silent(peer: Peer) -> None:
    """Accept and not even read."""
    peer.wait()


def hang_up(peer: Peer) -> None:
    """Read the request and close."""
    peer.read_request()


def reset(peer: Peer) -> None:
    """Read the request and reset the connection."""
    peer.read_request()
    linger_off = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_off)
    peer.sock.close()


def drip(data: bytes, every_seconds: float = 0.02) -> Behaviour:
    """Send `data` byte by byte, then go silent; a timeout per read never fires."""

    def behave(peer: Peer) -> None:
        peer.read_request()
        for byte in data:
            peer.send(bytes([byte]))
            if peer.wait(every_seconds):
                return
        peer.wait()

    return behave


def endless(head: bytes, piece: bytes) -> Behaviour:
    """Send `piece` again and again until the client leaves."""

    def behave(peer: Peer) -> None:
        peer.read_request()
        peer.send(head)
        while not peer.over.is_set():
            peer.send(piece)

    return behave
