"""Exposition text to samples: only the wanted names, as strictly as Prometheus itself reads them.

The stock Python parser takes 13 ms for a page of 93 KB and accepts what Prometheus refuses
(``1_000``, Arabic digits, ``1e400``, junk behind a timestamp). Here an anchored expression picks
the wanted lines first and each of them must then be flawless: one bad line fails the page, because
a page that is wrong in one place cannot be trusted in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from types import MappingProxyType

from kvcache_exporter.model import Problem, Sample

MAX_LINE_BYTES = 64 * 1024
MAX_LABELS = 64
"""vLLM 0.32 already puts 37 labels on ``cache_config_info``."""
MAX_LABEL_VALUE_CHARACTERS = 256
MAX_SERIES = 4096

_PREFIXES = (b"vllm:", b"vllm_", b"ray_vllm:", b"ray_vllm_")
_NUMBER = re.compile(
    rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?i:inf(?:inity)?|nan)"
)
_INFINITE = re.compile(rb"[+-]?(?i:inf)")
_LABEL = re.compile(
    rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(,|\})'
)
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_TIMESTAMP = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_ESCAPE = re.compile(r"\\([\\\"n])")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

Series = tuple[str, Mapping[str, str]]
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Parser:
    """Parses the pages of one target; remembers the label blocks of the last page only.

    *names* are sample names as on a vLLM page, without prefix; *plain* are names taken as they are.
    """

    def __init__(self, names: Iterable[str], plain: Iterable[str] = ()) -> None:
        alternatives = _alternatives(sorted(name.encode() for name in names))
        self._wanted = tuple(
            (b"\n" + prefix, re.compile(b"\n" + prefix + alternatives + rb"[ \t{][^\n]*"))
            for prefix in _PREFIXES
        )
        self._plain = re.compile(
            b"\n" + _alternatives(sorted(name.encode() for name in plain)) + rb"[ \t{][^\n]*"
        )
        self._known: dict[bytes, Series] = {}

    def parse(self, body: bytes) -> list[Sample] | Problem:
        """Return the wanted samples of *body* in page order, or why the page cannot be used."""
        if (problem := _unusable(body)) is not None:
            return problem
        text = b"\n" + body
        # A page speaks one dialect; looking for the other prefixes too would cost as much again.
        wanted = next((expression for start, expression in self._wanted if start in text), None)
        lines = wanted.findall(text) if wanted is not None else []
        lines += self._plain.findall(text)
        if len(lines) > MAX_SERIES:
            return Problem(
                "too_many_series",
                f"the page has {len(lines)} series of interest, the limit is {MAX_SERIES}: "
                "point the exporter at single vLLM servers, not at an aggregating endpoint",
            )
        return self._samples(lines)

    def _samples(self, lines: list[bytes]) -> list[Sample] | Problem:
        known: dict[bytes, Series] = {}
        samples = []
        for line in lines:
            series, _, digits = line.rpartition(b" ")
            found = self._known.get(series)
            try:
                if found is None:
                    series, digits = _split(line)
                    found = _series(series)
                value = number(digits)
            except ValueError as error:
                return _malformed(line, error)
            known[series] = found
            samples.append(Sample(found[0], found[1], value))
        self._known = known
        return samples


def number(digits: bytes) -> float:
    """Read a sample value as Go's ``ParseFloat`` does; raise ValueError for what it refuses."""
    if _NUMBER.fullmatch(digits) is None:
        raise ValueError(f"{_show(digits)} is not a number")
    value = float(digits)
    if value in (float("inf"), float("-inf")) and _INFINITE.match(digits) is None:
        raise ValueError(f"{_show(digits)} does not fit a double")
    return value


def _split(line: bytes) -> tuple[bytes, bytes]:
    """Cut a line into series and value, dropping a timestamp or an OpenMetrics exemplar."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"the line has {len(line)} bytes, the limit is {MAX_LINE_BYTES}")
    end = _end_of_series(line)
    fields = line[end:].partition(b" # {")[0].split()
    if not 1 <= len(fields) <= 2:
        raise ValueError("expected a value and at most a timestamp behind the series")
    if len(fields) == 2 and _TIMESTAMP.fullmatch(fields[1]) is None:
        raise ValueError(f"{_show(fields[1])} is not a timestamp")
    if line.endswith(b"\r"):
        raise ValueError("the line ends in a carriage return")
    return line[:end], fields[0]


def _end_of_series(line: bytes) -> int:
    name = _NAME.match(line, 1)
    assert name is not None, "the filter matched a name"  # noqa: S101 - an invariant, not input
    brace = re.compile(rb"[ \t]*\{").match(line, name.end())
    if brace is None:
        return name.end()
    position = brace.end()
    if line[position : position + 1] == b"}":
        return position + 1
    while (label := _LABEL.match(line, position)) is not None:
        position = label.end()
        if label[3] == b"}":
            return position
        if line[position : position + 1] == b"}":
            return position + 1
    raise ValueError("the label block is not closed properly")


def _series(series: bytes) -> Series:
    name = _NAME.match(series, 1)
    assert name is not None  # noqa: S101 - _split has matched it
    pairs = [(m[1].decode(), _unescape(m[2])) for m in _LABEL.finditer(series, name.end() + 1)]
    if len(pairs) > MAX_LABELS:
        raise ValueError(f"the series has {len(pairs)} labels, the limit is {MAX_LABELS}")
    labels = dict(pairs)
    if len(labels) != len(pairs):
        raise ValueError("a label name stands twice in one series")
    return name[0].decode(), MappingProxyType(labels)


def _unescape(raw: bytes) -> str:
    """Decode a label value; strip control characters and bound it, for it ends up on our pages."""
    text = raw.decode("utf-8")  # UnicodeDecodeError is a ValueError
    if "\\" in text:
        text = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], text)
    return _CONTROL.sub(" ", text)[:MAX_LABEL_VALUE_CHARACTERS]


def _unusable(body: bytes) -> Problem | None:
    if not body.strip():
        return Problem(
            "empty", "the page is empty: check the path, or whether the server has just started"
        )
    head = body[:512].lstrip().lower()
    if head.startswith((b"<", b"{", b"[")):
        kind = "HTML" if head.startswith(b"<") else "JSON"
        return Problem(
            "not_metrics",
            f"the answer is {kind}, not a metrics page: check host, port and path "
            "(vLLM serves its metrics under /metrics)",
        )
    if not body.endswith(b"\n") and not body.endswith(b"# EOF"):
        return Problem(
            "truncated",
            "the page does not end in a line break, so its last value may be cut off: "
            "it is dropped whole; look for a proxy that cuts answers",
        )
    return None


def _malformed(line: bytes, error: ValueError) -> Problem:
    return Problem(
        "malformed",
        f"Prometheus would refuse this page: {error} in {_show(line.strip())}; "
        "the page is dropped whole: look for a proxy or a front end that rewrites it",
    )


def _show(raw: bytes) -> str:
    text = raw[:80].decode("utf-8", "replace")
    return repr(_CONTROL.sub(" ", text)) + ("..." if len(raw) > 80 else "")


def _alternatives(names: list[bytes]) -> bytes:
    """Group names by their first letters, so that the expression fails early on other lines."""
    if not names:
        return rb"(?!)"
    groups = (
        re.escape(head) + b"(?:" + b"|".join(re.escape(name[2:]) for name in group) + b")"
        for head, group in groupby(names, key=lambda name: name[:2])
    )
    return b"(?:" + b"|".join(groups) + b")"
