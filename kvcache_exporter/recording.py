"""Recordings of scrapes: JSON lines, gzip by suffix, one scrape of one target a line.

Each line is ``{"time": unix seconds, "target": name, "body": page text or null, "error": text,
"gpus": [{"uuid", "index", "total_bytes", "used_bytes", "reserved_bytes", "free_bytes",
"processes": [{"pid", "used_bytes"}]}]}``; ``error`` and ``gpus`` may be missing.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kvcache_exporter.model import GpuProcess, GpuReading, Problem, Scrape
from kvcache_exporter.schema import OperatorError

_SHAPE = '{"time": unix seconds, "target": "name", "body": "page text" or null}'
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_GPU_FIELDS = ("uuid", "index", "total_bytes", "used_bytes", "reserved_bytes", "free_bytes")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a scrape, and the GPUs as they were then."""

    scrape: Scrape
    gpus: tuple[GpuReading, ...] = ()


def read(path: Path) -> Iterator[Entry]:
    """Yield the entries of *path*; raise OperatorError for a line that is none.

    Where the recorder was killed the end is cut off: what stands before it counts.
    """
    try:
        with _open(path, "rt") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip() and (line.endswith("\n") or _is_whole(line)):
                    yield _entry(f"{path} line {number}", line)
    except EOFError:
        return
    except (OSError, zlib.error, UnicodeDecodeError) as error:
        raise OperatorError(f"{path}: cannot be read as a recording: {error}") from error


class Writer:
    """Appends entries to a file, each whole and flushed, so that a killed run loses none."""

    def __init__(self, path: Path) -> None:
        self._file = _open(path, "at")

    def write(self, entry: Entry) -> None:
        """Append one line."""
        self._file.write(json.dumps(_plain(entry), separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def _open(path: Path, mode: str) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, mode, encoding="utf-8")  # type: ignore[return-value]
    return path.open(mode, encoding="utf-8")


def _is_whole(last_line: str) -> bool:
    try:
        json.loads(last_line)
    except (ValueError, RecursionError):
        return False
    return True


def _entry(where: str, line: str) -> Entry:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise OperatorError(f"{where}: not JSON ({error}); each line must be {_SHAPE}") from None
    if not isinstance(data, dict) or not _is_number(data.get("time")):
        raise OperatorError(f'{where}: "time" is missing or no number; write {_SHAPE}')
    if not isinstance(data.get("body"), str | None):
        raise OperatorError(f'{where}: "body" must be text or null; write {_SHAPE}')
    try:
        gpus = tuple(_gpu(gpu) for gpu in data.get("gpus") or ())
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise OperatorError(f'{where}: "gpus" must be a list of objects with a uuid') from None
    return Entry(_scrape(data), gpus)


def _scrape(data: Mapping[str, Any]) -> Scrape:
    body, problem = data.get("body"), None
    if body is None:
        reason = str(data.get("error") or "the scrape failed when it was recorded")
        problem = Problem("failed", reason)
    elif not body.endswith("\n"):
        body += "\n"  # some recorders strip it; whether the page was whole they knew then
    raw = None if body is None else body.encode("utf-8", "replace")
    target = _CONTROL.sub(" ", str(data.get("target") or "recording"))[:256]
    return Scrape(target, float(data["time"]), 0.0, raw, problem)


def _gpu(data: Mapping[str, Any]) -> GpuReading:
    sizes: dict[str, Any] = {key: _size(data.get(key)) for key in _GPU_FIELDS if key != "uuid"}
    processes = data.get("processes")
    return GpuReading(
        uuid=str(data["uuid"]),
        source=str(data.get("source") or "recording"),
        processes=None if processes is None else tuple(map(_process, processes)),
        **sizes,
    )


def _process(data: Mapping[str, Any]) -> GpuProcess:
    return GpuProcess(int(data["pid"]), _size(data.get("used_bytes")), data.get("name"))


def _size(value: Any) -> int | None:
    return None if value is None else int(value)


def _is_number(value: Any) -> bool:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    return sound and abs(value) < 1e15


def _plain(entry: Entry) -> dict[str, Any]:
    scrape = entry.scrape
    body = None if scrape.body is None else scrape.body.decode("utf-8", "replace")
    data: dict[str, Any] = {"time": round(scrape.time, 3), "target": scrape.target, "body": body}
    if scrape.problem is not None:
        data["error"] = scrape.problem.text
    if entry.gpus:
        data["gpus"] = [_plain_gpu(gpu) for gpu in entry.gpus]
    return data


def _plain_gpu(gpu: GpuReading) -> dict[str, Any]:
    data = {name: getattr(gpu, name) for name in _GPU_FIELDS}
    return data | {"source": gpu.source, "processes": _plain_processes(gpu.processes)}


def _plain_processes(processes: Sequence[GpuProcess] | None) -> list[dict[str, Any]] | None:
    if processes is None:
        return None
    return [{"pid": process.pid, "used_bytes": process.used_bytes} for process in processes]
