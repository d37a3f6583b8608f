"""One NVML child process seen from the exporter: asked without ever waiting past a deadline."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("_nvml_child.py")
MAX_ANSWER_BYTES = 4 << 20


class NvmlProcess:
    """Starts at once, answers one request at a time; a late answer may still be fetched later."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own file
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the exporter, which then closes the pipe
        )
        self._received = bytearray()
        self.asked_at: float | None = None
        """When the request that is still open was made; None = none is."""

    @property
    def pid(self) -> int:
        """Process id, for people and tests."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still exists; reaps it when it does not."""
        return self._process.poll() is None

    def ask(self, now: float) -> None:
        """Send a request. A dead child does not answer, which ``answer`` finds out."""
        self.asked_at = now
        with suppress(OSError):
            os.write(self._stdin, b"read\n")

    def answer(self, timeout_seconds: float) -> dict[str, Any] | None:
        """Return the answer to the open request; None when it is late. EOFError: it died."""
        deadline = time.monotonic() + timeout_seconds
        while b"\n" not in self._received:
            wait = max(0.0, deadline - time.monotonic())
            if not select.select([self._stdout], [], [], wait)[0]:
                return None
            chunk = os.read(self._stdout, 1 << 16)
            self._received += chunk
            if not chunk or len(self._received) > MAX_ANSWER_BYTES:
                raise EOFError
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received[:] = rest
        self.asked_at = None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def leave(self) -> None:
        """Close the pipes, which ends it as soon as the kernel lets it go; sends no signal.

        A SIGKILL in the middle of a driver call has frozen GPUs (NVIDIA/dcgm-exporter#84).
        """
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def leave_and_reap(self, timeout_seconds: float) -> None:
        """Leave, and give a child that does not hang the moment it needs to end."""
        self.leave()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_seconds)

    @property
    def _stdin(self) -> int:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        return self._process.stdin.fileno()

    @property
    def _stdout(self) -> int:
        assert self._process.stdout is not None  # noqa: S101
        return self._process.stdout.fileno()
