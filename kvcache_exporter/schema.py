"""A YAML document to frozen dataclasses: every mistake at once, each with its path and a way out.

The dataclass is the schema: field names are the keys, annotations the types, defaults the defaults.
A dataclass may add rules of its own in ``mistakes() -> Iterable[(key, text)]``.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
MAX_ALIASES = 100
_USER = re.compile(r"//.*@")
"""User and password in a URL: they must not reach a message."""

T = TypeVar("T")


class OperatorError(Exception):
    """What is wrong with the operator's input, one line for each mistake."""

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = (lines,) if isinstance(lines, str) else tuple(lines)
        super().__init__("\n".join(self.lines))


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key written twice and a file that grows out of its aliases."""

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > MAX_ALIASES:
                raise yaml.YAMLError(f"more than {MAX_ALIASES} aliases")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue  # as a key of a mapping SafeLoader refuses it by itself
            if key_node.value in seen and key_node.tag != "tag:yaml.org,2002:merge":
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: {key_node.value!r} stands twice; remove one")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, path: str) -> Any:
    """Parse YAML or JSON *text* from *path*; raise OperatorError naming the line."""
    if len(text.encode()) > MAX_DOCUMENT_BYTES:
        raise OperatorError([f"{path}: larger than {MAX_DOCUMENT_BYTES // 2**20} MiB; split it"])
    if path.endswith(".json"):
        return _parse_json(text, path)
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except Exception as error:  # PyYAML lets IndexError, KeyError and others out for odd tags
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(error, "problem", None) or _what(error)
        raise OperatorError([f"{path}: {where}not valid YAML: {what}"]) from None


def _what(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, (yaml.YAMLError, ValueError)):
        return str(error)
    return "a value does not fit its !!tag; leave the tag out"


def _parse_json(text: str, path: str) -> Any:
    """Parse JSON as such: as YAML, a list of 10,000 targets would take seconds."""
    try:
        return json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise OperatorError([f"{path}: not valid JSON: {error}"]) from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"{twice!r} stands twice; remove one")
    return made


def build(cls: type[T], data: Any, path: str) -> T:
    """Make a *cls* of *data*, or raise OperatorError with all of them."""
    found: list[str] = []
    value = _dataclass(cls, data, path, found)
    if found:
        raise OperatorError(found)
    assert isinstance(value, cls)  # noqa: S101 - no mistakes found, so it was made
    return value


def _dataclass(cls: type[Any], data: Any, path: str, found: list[str]) -> Any:
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        found.append(f"{path}: must be a mapping of keys to values, not {_kind(data)}")
        return None
    known = {one.name: one for one in fields(cls)}
    for key in data:
        if key not in known:
            found.append(f"{path}.{key}: unknown key{suggestion(str(key), known)}")
    missing = [n for n, one in known.items() if n not in data and not _has_default(one)]
    found += [f"{path}.{name}: is required" for name in missing]
    values, wrong = _fields(cls, data, path, found)
    if missing or not all(_has_default(known[name]) for name in wrong):
        return None
    made = cls(**values)
    if hasattr(made, "mistakes"):
        texts = [(key, text) for key, text in made.mistakes() if key.split("[")[0] not in wrong]
        found += [f"{path}.{key}: {text}" for key, text in texts]
    return made


def _fields(
    cls: type[Any], data: Mapping[Any, Any], path: str, found: list[str]
) -> tuple[dict[str, Any], set[str]]:
    """Convert the known keys of *data*; return the sound values and the names of the others."""
    hints, values, wrong = _hints(cls), {}, set()
    for one in fields(cls):
        if one.name not in data or (data[one.name] is None and _has_default(one)):
            continue
        before = len(found)
        values[one.name] = _value(hints[one.name], data[one.name], f"{path}.{one.name}", found)
        if len(found) > before:
            wrong.add(one.name)
            del values[one.name]
    return values, wrong


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
"""The types of a dataclass; working them out takes longer than reading a target."""


def _value(hint: Any, data: Any, path: str, found: list[str]) -> Any:
    if hint is Any:
        return data
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        inner = next(one for one in arguments if one is not types.NoneType)
        return None if data is None else _value(inner, data, path, found)
    if origin is tuple:
        return _items(arguments[0], data, path, found)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(arguments[1], data, path, found)
    if is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint, data, path, found)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice(hint, data, path, found)
    return _scalar(hint, data, path, found)


def _items(hint: Any, data: Any, path: str, found: list[str]) -> tuple[Any, ...]:
    if not isinstance(data, list):
        found.append(f"{path}: must be a list, not {_kind(data)}; write each item after a '-'")
        return ()
    return tuple(_value(hint, item, f"{path}[{i}]", found) for i, item in enumerate(data))


def _mapping(hint: Any, data: Any, path: str, found: list[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        found.append(f"{path}: must be a mapping of names to values, not {_kind(data)}")
        return {}
    return {str(key): _value(hint, item, f"{path}.{key}", found) for key, item in data.items()}


def _choice(hint: type[Enum], data: Any, path: str, found: list[str]) -> Any:
    choices = [str(one.value) for one in hint]
    if data in choices:
        return hint(data)
    found.append(f"{path}: must be one of {', '.join(choices)}, not {data!r}")
    return None


def _scalar(hint: Any, data: Any, path: str, found: list[str]) -> Any:
    accepts, wanted = _SCALARS[hint]
    if accepts(data):
        return float(data) if hint is float else data
    hint_text = "; put it in quotes" if hint is str and data is not None else ""
    found.append(f"{path}: must be {wanted}, not {_kind(data)}{hint_text}")
    return None


def _number(data: Any) -> bool:
    finite = isinstance(data, int | float) and not isinstance(data, bool)
    return finite and abs(data) < 1e18


_SCALARS: Mapping[Any, tuple[Callable[[Any], bool], str]] = {
    str: (lambda data: isinstance(data, str) and _encodable(data), "a text"),
    bool: (lambda data: isinstance(data, bool), "true or false"),
    int: (lambda data: _number(data) and isinstance(data, int), "a whole number"),
    float: (_number, "a number"),
}


def _encodable(text: str) -> bool:
    """Half a surrogate pair, as an escape in YAML or JSON, could not be written on any page."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _kind(data: Any) -> str:
    if data is None:
        return "empty"
    if isinstance(data, str):
        return repr(_USER.sub("//...@", data))[:80]
    names = {dict: "a mapping", list: "a list", bool: str(data).lower()}
    return names.get(type(data), f"{data!r}")[:80]


def suggestion(key: str, known: Iterable[str]) -> str:
    """Say which of the *known* names was probably meant."""
    close = get_close_matches(key, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(known))}"


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING
