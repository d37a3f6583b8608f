"""Target files in Prometheus' ``file_sd`` format; a bad file keeps the targets it had before.

Watched by modification time, which also sees a ConfigMap's symbolic link being swapped. A file
that is gone takes its targets with it; a file that cannot be read or parsed does not.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass

from kvcache_exporter.config import Config
from kvcache_exporter.discovery import Finder, Found
from kvcache_exporter.discovery._groups import parse
from kvcache_exporter.model import Problem, Target
from kvcache_exporter.schema import OperatorError
from kvcache_exporter.sd_config import FileSdConfig


@dataclass(slots=True)
class _File:
    """What one file said when it was last good, and how it looked when it was last read."""

    stamp: tuple[int, int, int] | None = None
    targets: tuple[Target, ...] = ()
    problem: Problem | None = None


class FileSd:
    """The targets of all files that match one configuration entry."""

    def __init__(self, config: FileSdConfig) -> None:
        self._config = config
        self._files: dict[str, _File] = {}
        self._next = float("-inf")

    def find(self, now: float) -> Found:
        """Look at the files again when their time has come."""
        if now >= self._next:
            self._next = now + self._config.refresh_seconds
            paths = sorted({p for pattern in self._config.files for p in glob.glob(pattern)})
            self._files = {path: self._read(path) for path in paths}
        files = self._files.values()
        missing = [p for p in self._config.files if "*" not in p and p not in self._files]
        problems = [file.problem for file in files if file.problem is not None]
        problems += [_missing(path) for path in missing]
        complete = all(file.stamp is not None for file in files)
        return Found(tuple(t for file in files for t in file.targets), tuple(problems), complete)

    def close(self) -> None:
        """Nothing is open."""

    def _read(self, path: str) -> _File:
        known = self._files.get(path, _File())
        try:
            status = os.stat(path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == known.stamp and known.problem is None:
                return known
            with open(path, encoding="utf-8") as file:
                text = file.read()
            return _File(stamp, parse(text, path, self._config.auth))
        except OperatorError as error:
            text = "; ".join(error.lines[:3])
        except (OSError, UnicodeDecodeError) as error:
            text = f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}"
        kept = f"; its last {len(known.targets)} targets are kept, rename(2) a good file over it"
        return _File(known.stamp, known.targets, Problem("file_sd", text + kept))


def _missing(path: str) -> Problem:
    return Problem("file_sd", f"{path}: no such file; create it, [] means no targets")


def open_all(config: Config) -> list[Finder]:
    """Open one finder for each entry of the configuration."""
    return [FileSd(one) for one in config.file_sd]
