"""Recordings: JSON lines of whole ``/metrics`` pages as ``record`` writes them, gzip by suffix."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from kvcache_exporter.analyze.frame import Frame, InputError
from kvcache_exporter.engines import vllm
from kvcache_exporter.model import GpuProcess, GpuReading, Problem
from kvcache_exporter.samples import Parser

SHAPE = '{"time": unix seconds, "target": "name", "body": "page text" or null}'


def frames(path: Path) -> Iterator[Frame]:
    """Yield one frame a line; raise ``InputError`` for a line that is no recording."""
    parsers: dict[str, Parser] = {}
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _frame(_entry(path, number, line), parsers)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a recording: {error}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _entry(path: Path, number: int, line: str) -> Mapping[str, Any]:
    where = f"{path} line {number}"
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error}); each line must be {SHAPE}") from error
    if not isinstance(entry, dict) or not _is_number(entry.get("time")):
        raise InputError(f'{where}: "time" is missing or no number; each line must be {SHAPE}')
    if not isinstance(entry.get("body"), str | None):
        raise InputError(f'{where}: "body" must be text or null; each line must be {SHAPE}')
    return entry


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _frame(entry: Mapping[str, Any], parsers: dict[str, Parser]) -> Frame:
    target = str(entry.get("target", "recording"))
    parser = parsers.setdefault(target, Parser(vllm.NAMES, vllm.PLAIN))
    gpus = tuple(_gpu(gpu) for gpu in entry.get("gpus") or () if isinstance(gpu, dict))
    body = entry.get("body")
    if body is None:
        problem = Problem("down", str(entry.get("error") or "the scrape failed when recorded"))
        return Frame(float(entry["time"]), target, problem, gpus)
    raw = body.encode()
    samples = parser.parse(raw if raw.endswith(b"\n") else raw + b"\n")
    return Frame(float(entry["time"]), target, samples or vllm.absence(raw), gpus)


def _gpu(entry: Mapping[str, Any]) -> GpuReading:
    processes = entry.get("processes")
    return GpuReading(
        uuid=str(entry.get("uuid")),
        source="recording",
        index=entry.get("index"),
        total_bytes=entry.get("total_bytes"),
        used_bytes=entry.get("used_bytes"),
        reserved_bytes=entry.get("reserved_bytes"),
        free_bytes=entry.get("free_bytes"),
        processes=None
        if processes is None
        else tuple(GpuProcess(p["pid"], p.get("used_bytes"), p.get("name")) for p in processes),
    )
