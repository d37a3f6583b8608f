"""One streamed completion of an OpenAI-compatible server, measured."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import requests

from kvcache_exporter.soak.profiles import Ask

CANCEL_AFTER_CHUNKS = 3
MAX_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request went; no word of it is kept."""

    time: float
    """Unix seconds when it was sent."""
    id: int
    profile: str
    status: int | None
    """HTTP status; None = no answer at all."""
    latency_seconds: float
    first_token_seconds: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cancelled: bool = False
    retries: int = 0
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it did what it should; a hang-up of ours counts."""
        return self.error is None and self.status == 200


@dataclass(slots=True)
class _Stream:
    first_token_seconds: float | None = None
    usage: dict[str, Any] | None = None
    chunks: int = 0
    done: bool = False


def send(
    session: requests.Session, url: str, model: str, ask: Ask, number: int, profile: str,
    timeout_seconds: float,
) -> Outcome:  # fmt: skip
    """Send *ask* and read its stream to the end, or hang up early where it says so."""
    started, clock = time.time(), time.monotonic()
    stream, status, error = _Stream(), None, None
    body = {
        "model": model,
        "prompt": ask.prompt,
        "max_tokens": ask.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        with closing(
            session.post(
                f"{url}/v1/completions", json=body, stream=True, timeout=timeout_seconds,
                allow_redirects=False,
            )
        ) as response:  # fmt: skip
            status = response.status_code
            if status == 200:
                _read(response, stream, clock, timeout_seconds, ask.cancel)
                error = None if stream.done or ask.cancel else "the stream ended early"
            else:
                error = f"HTTP status {status}"
    except (requests.RequestException, ValueError, TimeoutError) as failed:
        error = _reason(failed)
    usage = stream.usage or {}
    return Outcome(
        time=started,
        id=number,
        profile=profile,
        status=status,
        latency_seconds=time.monotonic() - clock,
        first_token_seconds=stream.first_token_seconds,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens", stream.chunks or None),
        cancelled=ask.cancel,
        error=error,
    )


def _read(
    response: requests.Response, stream: _Stream, clock: float, limit: float, cancel: bool
) -> None:
    """Read server-sent events; the time-out of ``requests`` is between bytes, ours is in all."""
    for line in response.iter_lines(chunk_size=4096):
        if time.monotonic() - clock > limit:
            raise TimeoutError
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            stream.done = True
            return
        event = json.loads(data)
        if event.get("usage"):
            stream.usage = event["usage"]
        if event.get("choices"):
            stream.chunks += 1
            if stream.first_token_seconds is None:
                stream.first_token_seconds = time.monotonic() - clock
        if cancel and stream.chunks >= CANCEL_AFTER_CHUNKS:
            return


def _reason(error: Exception) -> str:
    if isinstance(error, requests.Timeout | TimeoutError):
        return "timed out"
    if isinstance(error, requests.ConnectionError):
        return "connection failed"
    return "unreadable answer"


def served_model(
    session: requests.Session, url: str, timeout_seconds: float
) -> tuple[str, int | None]:
    """Ask which model is served and how long its context may be; raises RequestException."""
    answer = session.get(f"{url}/v1/models", timeout=timeout_seconds, allow_redirects=False)
    answer.raise_for_status()
    try:
        first = answer.json()["data"][0]
        length = first.get("max_model_len")
        return str(first["id"]), length if isinstance(length, int) else None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise requests.RequestException(
            "no list of models: is this an OpenAI-compatible server?"
        ) from None
