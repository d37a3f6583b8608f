"""A load that never ends by itself: requests of all lengths, hung up on at any moment."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from load import complete, words

ABORT_SHARE = 0.3
MAX_TOKENS = 900
LAST_CHUNK = 300


@dataclass
class Steady:
    """So many clients at once; ``sent`` counts what they did."""

    port: int
    clients: int = 8
    sent: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send requests until the block ends, and wait for the last ones."""
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._client, args=(seed, stop)) for seed in range(self.clients)
        ]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            stop.set()
            for one in threads:
                one.join()

    def _client(self, seed: int, stop: threading.Event) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            hang_up = rng.randint(1, LAST_CHUNK) if rng.random() < ABORT_SHARE else None
            prompt = words(f"shared {rng.randrange(4)}", 60) + words(rng.random(), 40)
            try:
                complete(self.port, prompt, rng.randint(20, MAX_TOKENS), hang_up)
                self.sent["hung up" if hang_up else "completed"] += 1
            except OSError:
                self.sent["failed"] += 1
                stop.wait(1.0)
