"""Breaking off an answer from another thread: ``requests`` only times out each silence in it."""

from __future__ import annotations

from contextlib import suppress

import requests


def hang_up(response: requests.Response) -> None:
    """Let whoever reads *response* find its end at once; urllib3 before 2.3 cannot."""
    with suppress(OSError, ValueError, RuntimeError, AttributeError):  # it may have ended by itself
        response.raw.shutdown()
