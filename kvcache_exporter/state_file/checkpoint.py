"""The judges on disk, so that a restart of the exporter forgets no verdict.

The file is written beside its place, synced and renamed, so it is the old one or the new one, never
half of either: magic, format version, length and CRC-32, then compressed JSON. A file that is
damaged, foreign or from a newer version is set aside as ``NAME.corrupt`` and named in a Problem,
and the exporter begins anew. An advisory lock keeps two exporters from sharing one file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kvcache_exporter.history import History
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge.leak import Leak
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Finding, Judgement, Problem, State
from kvcache_exporter.state_file import plain

MAGIC = b"KVCX"
VERSION = 2
HEADER = struct.Struct(">4sHQI")
MOST_BYTES = 1 << 30
Judges = dict[str, dict[str, Judge]]
"""By target, then by engine."""


class LockedError(Exception):
    """Another process holds this file."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file for this process alone; LockedError when another one does."""
    with open(path.with_name(path.name + ".lock"), "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockedError(f"{path} is in use by another kvcache-exporter") from None
        yield


def save(path: Path, judges: Mapping[str, Mapping[str, Judge]]) -> None:
    """Write all judges; OSError when the place cannot be written, and then the old file stands."""
    state = [
        [target, engine, _dump(judge)]
        for target, one in judges.items()
        for engine, judge in one.items()
    ]
    body = zlib.compress(json.dumps(state).encode(), 1)
    header = HEADER.pack(MAGIC, VERSION, len(body), zlib.crc32(body))
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "wb") as file:
        file.write(header + body)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync_folder(path.parent)


def load(
    path: Path, settings: Callable[[str], JudgeSettings] = lambda target: JudgeSettings()
) -> tuple[Judges, Problem | None]:
    """Read all judges, with *settings* for each target; what cannot be used is set aside."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES)
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        return {}, _problem(path, f"cannot be read ({error.strerror})", "check its permissions")
    judges: Judges = {}
    try:
        for target, engine, state in _unpack(content):
            judges.setdefault(str(target), {})[str(engine)] = _load(state, settings(str(target)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return {}, _set_aside(path, str(error))
    return judges, None


def _unpack(content: bytes) -> list[list[Any]]:
    if len(content) < HEADER.size or not content.startswith(MAGIC):
        raise ValueError("it is no checkpoint of this program")
    _, version, length, crc = HEADER.unpack_from(content)
    body = content[HEADER.size :]
    if version != VERSION:
        raise ValueError(f"its format is {version}, this program writes {VERSION}")
    if len(body) != length or zlib.crc32(body) != crc:
        raise ValueError("it is damaged")
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(body, MOST_BYTES)
    except zlib.error:
        raise ValueError("it is damaged") from None
    state = json.loads(text)
    if not isinstance(state, list):
        raise TypeError("it holds no judges")
    return state


def _dump(judge: Judge) -> dict[str, Any]:
    state: dict[str, Any] = {"history": plain.dump(judge.history), "leak": plain.dump(judge.leak)}
    if (judgement := judge.judgement) is not None:
        state["judgement"] = {
            "state": judgement.state.value,
            "since": judgement.since,
            "because": list(judgement.because),
            "findings": [[f.kind, f.start, f.because, f.end] for f in judgement.findings],
        }
    return state


def _load(state: dict[str, Any], settings: JudgeSettings) -> Judge:
    judge = Judge(settings)
    history, leak = plain.load(state["history"]), plain.load(state["leak"])
    if not isinstance(history, History) or not isinstance(leak, Leak):
        raise TypeError("it holds no history")
    history.settings = settings
    judge.history, judge.leak = history, leak
    if (old := state.get("judgement")) is not None:
        judge.judgement = Judgement(
            state=State(old["state"]),
            since=float(old["since"]),
            confidence=0.0,
            because=tuple(old["because"]),
            leak_active=leak.active,
            findings=tuple(Finding(*finding) for finding in old["findings"]),
        )
    return judge


def _set_aside(path: Path, reason: str) -> Problem:
    aside = path.with_name(path.name + ".corrupt")
    with contextlib.suppress(OSError):
        path.replace(aside)
    return _problem(path, f"is not usable: {reason}", f"it was set aside as {aside.name}")


def _problem(path: Path, what: str, then: str) -> Problem:
    return Problem(
        "checkpoint_unusable",
        f"the checkpoint {path} {what}; verdicts begin anew from what is scraped now: {then}",
    )


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
