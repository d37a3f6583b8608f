"""Requests for a real server: made-up words, streamed, some of them hung up on."""

from __future__ import annotations

import json
import random
import socket
import threading
from dataclasses import dataclass

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]


def words(seed: object, count: int) -> str:
    rng = random.Random(str(seed))
    return " ".join(rng.choice(WORDS) for _ in range(count))


def complete(port: int, prompt: str, max_tokens: int, hang_up_after: int | None = None) -> int:
    """Stream one completion; return chunks read. *hang_up_after* closes after so many chunks."""
    body = {
        "model": "tiny", "prompt": prompt, "max_tokens": max_tokens,
        "ignore_eos": True, "stream": True,
    }  # fmt: skip
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    chunks = 0
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(head.encode() + data)
        while connection.recv(65536):
            chunks += 1
            if hang_up_after is not None and chunks >= hang_up_after:
                break
    return chunks


@dataclass
class Load:
    """A fixed number of requests from a few clients at once."""

    port: int
    requests: int
    clients: int = 8
    abort_share: float = 0.0
    max_tokens: int = 40
    seed: int = 1

    def run(self) -> None:
        """Send them all and wait for the answers."""
        numbers = iter(range(self.requests))
        lock = threading.Lock()

        def client() -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                rng = random.Random(self.seed * 100_003 + number)
                hang_up = 2 if rng.random() < self.abort_share else None
                prompt = words(f"shared {number % 4}", 60) + words((self.seed, number), 40)
                complete(self.port, prompt, self.max_tokens, hang_up)

        threads = [threading.Thread(target=client) for _ in range(self.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
