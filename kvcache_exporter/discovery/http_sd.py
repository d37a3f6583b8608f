"""Target lists from an HTTP endpoint in Prometheus' ``http_sd`` format, asked for in a thread."""

from __future__ import annotations

import threading
from dataclasses import replace

import requests

from kvcache_exporter.config import Config
from kvcache_exporter.discovery import Finder, Found
from kvcache_exporter.discovery._groups import parse
from kvcache_exporter.discovery._hang_up import hang_up
from kvcache_exporter.model import Problem, Target
from kvcache_exporter.schema import OperatorError
from kvcache_exporter.sd_config import HttpSdConfig
from kvcache_exporter.urls import is_loopback

MAX_BYTES = 8 * 1024 * 1024


class HttpSd:
    """Asks for the full list again and again; a bad answer keeps the list it had before."""

    def __init__(self, config: HttpSdConfig, timeout_seconds: float = 10.0) -> None:
        self._config = config
        self._timeout_seconds = timeout_seconds
        self._found = Found((), complete=False)
        self._stop = threading.Event()
        threading.Thread(target=self._poll, name="http_sd", daemon=True).start()

    def find(self, now: float) -> Found:
        """Return the last good list."""
        return self._found

    def close(self) -> None:
        """Ask no more."""
        self._stop.set()

    def _poll(self) -> None:
        while True:
            try:
                self._found = Found(self._ask())
            except (OperatorError, requests.RequestException, ValueError) as error:
                text = str(error) if isinstance(error, OperatorError) else type(error).__name__
                kept = f"its last {len(self._found.targets)} targets are kept"
                problem = Problem("http_sd", f"{self._config.url}: {text}; {kept}")
                self._found = replace(self._found, problems=(problem,))
            if self._stop.wait(self._config.refresh_seconds):
                return

    def _ask(self) -> tuple[Target, ...]:
        with requests.get(
            self._config.url,
            headers={"X-Prometheus-Refresh-Interval-Seconds": f"{self._config.refresh_seconds:g}"},
            timeout=self._timeout_seconds,
            allow_redirects=False,
            stream=True,
        ) as response:
            kind = response.headers.get("Content-Type", "")
            if response.status_code != 200 or "json" not in kind:
                raise OperatorError(f"answered {response.status_code} {kind[:40]}, not JSON")
            body = _body(response, self._timeout_seconds)
        targets = parse(body.decode(), "list", self._config.auth)
        # Who serves the list from this very machine may name addresses of this machine.
        discovered = not is_loopback(self._config.url)
        return tuple(replace(target, discovered=discovered) for target in targets)


def _body(response: requests.Response, timeout_seconds: float) -> bytes:
    """Read it all, in a bounded time and a bounded size."""
    end = threading.Timer(timeout_seconds, hang_up, [response])
    end.start()
    try:
        body = b""
        for chunk in response.iter_content(64 * 1024):
            body += chunk
            if len(body) > MAX_BYTES:
                raise OperatorError(f"the list is larger than {MAX_BYTES // 2**20} MiB")
        return body
    finally:
        end.cancel()


def open_all(config: Config) -> list[Finder]:
    """Open one finder for each entry of the configuration."""
    return [HttpSd(one) for one in config.http_sd]
