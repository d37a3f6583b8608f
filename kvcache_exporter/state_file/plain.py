"""What a judge remembers as plain JSON values and back: a closed list of classes, never pickle.

A table becomes its bytes in base64; an object of a class listed here becomes its attributes, read
back only into an object that has the very same ones. Anything else is an error, so a state written
by another version is refused, not half understood.
"""

from __future__ import annotations

import base64
from dataclasses import fields, is_dataclass
from typing import Any

from kvcache_exporter.history import History
from kvcache_exporter.history.blocks import BlockBuilder
from kvcache_exporter.history.changes import Changes
from kvcache_exporter.history.growth import GrowthWatch, MemoryLog
from kvcache_exporter.history.hits import HitLog
from kvcache_exporter.history.idle import IdleLog
from kvcache_exporter.history.table import Table
from kvcache_exporter.judge.leak import Leak
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading

VALUES: dict[str, type[Any]] = {"reading": EngineReading, "leak": Leak}
"""Frozen values, by the name they are written under."""
SKIPPED: dict[str, dict[str, Any]] = {
    "history": {"settings": None, "memo": {}, "problems": (), "reading": None, "audit": None},
    "changes": {"last": None},
    "memory": {"latest": ()},
    "reading": {"problems": ()},
}
"""What is not written, and what stands for it afterwards."""
Plain = Any
"""JSON: None, bool, number, text, list or object."""


def _blank() -> dict[str, Any]:
    """One new object of each mutable class, to be filled in."""
    return {
        "history": History(JudgeSettings()),
        "hits": HitLog(),
        "changes": Changes(),
        "idle": IdleLog(JudgeSettings().together_seconds),
        "memory": MemoryLog(),
        "growth": GrowthWatch(),
        "block": BlockBuilder(0.0, EngineReading("0"), (0.0, 0.0)),
    }


_NAMES = {type(blank): name for name, blank in _blank().items()}
_NAMES |= {cls: name for name, cls in VALUES.items()}


def dump(value: Any) -> Plain:
    """Turn a value into JSON values; TypeError for what is not on the list."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Table):
        data = base64.b64encode(value.data.tobytes()).decode()
        return {"is": "table", "columns": list(value.columns), "capacity": value.capacity,
                "typecode": value.typecode, "total": value.total, "data": data}  # fmt: skip
    if isinstance(value, tuple | list):
        return {"is": "tuple", "items": [dump(item) for item in value]}
    if isinstance(value, dict):
        return {"is": "dict", "items": [[dump(k), dump(v)] for k, v in value.items()]}
    name = _NAMES.get(type(value))
    if name is None:
        raise TypeError(f"{type(value).__name__} is nothing a judge remembers")
    kept = _attributes(value) - SKIPPED.get(name, {}).keys()
    return {"is": name} | {key: dump(getattr(value, key)) for key in sorted(kept)}


def load(plain: Plain) -> Any:
    """Turn JSON values back; ValueError for anything that ``dump`` would not write today."""
    if not isinstance(plain, dict):
        if isinstance(plain, list):
            raise ValueError("a bare list")
        return plain
    kind = plain.get("is")
    try:
        if kind == "table":
            return _table(plain)
        if kind == "tuple":
            return tuple(load(item) for item in plain["items"])
        if kind == "dict":
            return {load(k): load(v) for k, v in plain["items"]}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{kind}: {error}") from None
    return _object(str(kind), {k: load(v) for k, v in plain.items() if k != "is"})


def _object(kind: str, found: dict[str, Any]) -> Any:
    found |= {key: value for key, value in SKIPPED.get(kind, {}).items() if key not in found}
    if kind in VALUES:
        if found.keys() != {field.name for field in fields(VALUES[kind])}:
            raise ValueError(f"{kind} has other fields")
        return VALUES[kind](**found)
    target = _blank().get(kind)
    if target is None or found.keys() != _attributes(target):
        raise ValueError(f"{kind} is not known, or has other attributes")
    for key, value in found.items():
        setattr(target, key, value)
    return target


def _table(plain: dict[str, Any]) -> Table:
    table = Table(tuple(plain["columns"]), int(plain["capacity"]), plain["typecode"])
    table.data.frombytes(base64.b64decode(plain["data"], validate=True))
    table.total = int(plain["total"])
    rows, width = divmod(len(table.data), len(table.columns))
    if width or rows != min(table.total, table.capacity):
        raise ValueError("a table with broken rows")
    return table


def _attributes(value: Any) -> set[str]:
    if is_dataclass(value):
        return {field.name for field in fields(value)}
    return set(getattr(type(value), "__slots__", ())) | set(getattr(value, "__dict__", {}))
