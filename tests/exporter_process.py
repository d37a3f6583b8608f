"""A real ``kvcache-exporter`` process, its log line by line and its pages over HTTP."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

WAIT_SECONDS = 30.0
"""For a busy machine; only a failing test waits that long."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


class Exporter:
    """One running ``kvcache-exporter run``."""

    def __init__(self, *arguments: str, listen: str | None = None) -> None:
        listen = listen or f"127.0.0.1:{free_port()}"
        self.address = f"http://{listen}"
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kvcache_exporter",
                "run",
                "--listen-address",
                listen,
                *arguments,
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.log: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.log.append(line)
                self._lines.put(line)
        self._lines.put("")

    def line(self, *parts: str) -> str:
        """Wait for the next log line that holds all of *parts*."""
        while line := self._lines.get(timeout=WAIT_SECONDS):
            if all(part in line for part in parts):
                return line
        raise AssertionError(f"no line with {parts} before the end:\n{''.join(self.log)}")

    def serving(self) -> None:
        """Wait until the pages are served."""
        while self.process.poll() is None:
            with suppress(urllib.error.URLError, subprocess.TimeoutExpired):
                if self.get("/-/healthy")[0] == 200:
                    return
                self.process.wait(0.05)
        raise AssertionError("".join(self.log))

    def get(self, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
        request = urllib.request.Request(self.address + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def value(self, series: str) -> float | None:
        """The value of a series on /metrics, None where it is not there."""
        for line in self.get()[1].splitlines():
            if line.startswith(series + " "):
                return float(line.rpartition(" ")[2])
        return None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, number: int, seconds: float = WAIT_SECONDS) -> int:
        """Send a signal and return the exit code."""
        self.signal(number)
        return self.process.wait(seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)


@contextmanager
def running(*arguments: str, listen: str | None = None) -> Iterator[Exporter]:
    exporter = Exporter(*arguments, listen=listen)
    try:
        yield exporter
    finally:
        exporter.kill()
