"""Keeps the judges in the state file, so that a restart of the exporter forgets no verdict.

The file is optional in every sense: one that is damaged, in use or cannot be written is a problem
that is shown, and never a reason not to run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from kvcache_exporter.follow import Follower
from kvcache_exporter.model import Problem
from kvcache_exporter.state_file import checkpoint
from kvcache_exporter.state_file.checkpoint import Judges, LockedError

log = logging.getLogger(__name__)

SAVE_SECONDS = 300.0


class Keeper:
    """Reads the file once, writes it now and then and at the end."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._held = ExitStack()
        self._due = float("-inf")
        self.problem: Problem | None = None

    def load(self) -> Judges:
        """Take the file for this process and return what it remembers."""
        if self._path is None:
            return {}
        try:
            self._held.enter_context(checkpoint.locked(self._path))
        except (LockedError, OSError) as error:
            advice = "give each exporter a state_file of its own, in a folder that it may write"
            self.problem = Problem("state_file", f"{error}: nothing is kept; {advice}")
            self._path = None
            return {}
        judges, self.problem = checkpoint.load(self._path)
        return judges

    def save_if_due(self, followers: Mapping[str, Follower], now: float) -> None:
        """Write the file when its time has come."""
        if self._path is not None and now >= self._due:
            self._due = now + SAVE_SECONDS
            self.save(followers)

    def save(self, followers: Mapping[str, Follower]) -> None:
        """Write the file."""
        if self._path is None:
            return
        try:
            checkpoint.save(self._path, {name: one.judges for name, one in followers.items()})
        except OSError as error:
            text = f"{self._path}: cannot be written ({error.strerror}): verdicts would not survive"
            self.problem = Problem("state_file", f"{text} a restart; free the disk, or correct it")
        except Exception:
            log.exception("%s: internal error", self._path)
            self.problem = Problem(
                "state_file", "what is remembered cannot be written: report it with the log"
            )
        else:
            self.problem = None

    def close(self) -> None:
        """Let go of the file."""
        self._held.close()
