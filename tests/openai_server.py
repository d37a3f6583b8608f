"""A small OpenAI-compatible server on loopback with a vLLM page beside it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "data" / "pages" / "vllm-0.32.0-cpu-after-load.prom"
POOL = 511


@dataclass
class Behaviour:
    """What the server does; tests change it while it runs."""

    status: int = 200
    fail_first: int = 0
    """So many requests get a 503 before all is well."""
    leak_per_cancel: int = 0
    end_early: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    lost: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serve(behaviour: Behaviour) -> Iterator[str]:
    """Serve on a free port; yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                models = {"data": [{"id": "tiny", "max_model_len": 2048}]}
                self.answer(200, json.dumps(models).encode(), "application/json")
            elif self.path == "/metrics":
                self.answer(200, self.page(), "text/plain; version=0.0.4")
            else:
                self.answer(404, b"{}", "application/json")

        def page(self) -> bytes:
            usage = behaviour.lost / POOL
            before = b'kv_cache_usage_perc{engine="0",model_name="tiny"} 0.0'
            after = before.replace(b" 0.0", f" {usage!r}".encode())
            return PAGE.read_bytes().replace(before, after)

        def answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            request = json.loads(self.rfile.read(length))
            with behaviour.lock:
                behaviour.requests.append(request)
                busy = len(behaviour.requests) <= behaviour.fail_first
            if busy or behaviour.status != 200:
                status = 503 if busy else behaviour.status
                self.answer(status, b"{}", "application/json")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                self.stream(request["max_tokens"])
                self.chunk(b"")
            except OSError:  # the client hung up, as it sometimes should
                with behaviour.lock:
                    behaviour.lost += behaviour.leak_per_cancel

        def stream(self, tokens: int) -> None:
            for _ in range(tokens):
                self.event({"choices": [{"text": "x"}]})
                time.sleep(0.002)  # time for a hang-up to arrive, as at a real server
            if behaviour.end_early:
                return
            usage = {"prompt_tokens": 9, "completion_tokens": tokens}
            self.event({"choices": [], "usage": usage})
            self.chunk(b"data: [DONE]\n\n")

        def event(self, data: dict[str, Any]) -> None:
            self.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

        def chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
