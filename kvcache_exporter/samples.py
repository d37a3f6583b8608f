"""Exposition text to samples: only the wanted names, as strictly as Prometheus itself reads them.

The stock Python parser takes 13 ms for a page of 93 KB and accepts what Prometheus refuses
(``1_000``, Arabic digits, ``1e400``, junk behind a timestamp). Here the wanted lines are picked
first and each of them must then be flawless: one bad line fails the page, because a page that is
wrong in one place cannot be trusted in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from sys import intern
from types import MappingProxyType

from kvcache_exporter.model import Problem, Sample
from kvcache_exporter.wanted_names import expressions

MAX_LINE_BYTES = 64 * 1024
MAX_LABELS = 64
"""vLLM 0.32 already puts 37 labels on ``cache_config_info``."""
MAX_LABEL_VALUE_CHARACTERS = 256
MAX_SERIES = 4096

_DECIMAL = b"0123456789.eE+-"
"""Of these characters ``float`` accepts exactly what Go does."""
_WORD = re.compile(rb"[+-]?(?i:inf(?:inity)?|nan)")
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BRACE = re.compile(rb"[ \t]*\{")
_LABEL = re.compile(rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(,?)')
_CLOSE = re.compile(rb"[ \t]*\}")
_BLANKS = re.compile(rb"[ \t]+")
_MILLISECONDS = re.compile(rb"[+-]?[0-9]{1,18}")
_SECONDS = re.compile(rb"[+-]?[0-9]{1,18}(?:\.[0-9]*)?")
_ESCAPE = re.compile(r"\\([\\\"n])")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

Series = tuple[str, Mapping[str, str]]
NO_LABELS: Mapping[str, str] = MappingProxyType({})


_Line = tuple[int, bytes, bytes, Sample]
"""Which line of the page it is, what stands before the value, the value, the sample."""

ANEW_PAGES = 32
"""How often all lines are looked at though the page looks as it did before."""


class Parser:
    """Parses the pages of one target; remembers the lines of the last page only.

    *names* are sample names as on a vLLM page, without prefix; *plain* are names taken as they are.
    """

    def __init__(self, names: Iterable[str], plain: Iterable[str] = ()) -> None:
        self._dialects, self._plain = expressions(frozenset(names), frozenset(plain))
        self._last: list[_Line] = []
        self._lines = 0
        self._pages = 0

    def parse(self, body: bytes) -> list[Sample] | Problem:
        """Return the wanted samples of *body* in page order, or why the page cannot be used."""
        if (problem := _unusable(body)) is not None:
            return problem
        lines = body.split(b"\n")
        page = self._as_before(lines) or self._searched(lines)
        if isinstance(page, Problem):
            return page
        self._last, self._lines = page, len(lines)
        return [sample for *_, sample in page]

    def _as_before(self, lines: list[bytes]) -> list[_Line] | None:
        """Read the lines that the last page had; None if this page is laid out otherwise.

        As long as a page has as many lines and those where they were, it has none of interest
        besides: this takes a third of the time of looking at all of them.
        """
        self._pages += 1
        if len(lines) != self._lines or self._pages % ANEW_PAGES == 0:
            return None
        page: list[_Line] = []
        for last in self._last:
            if (line := _changed(lines[last[0]], last)) is None:
                return None
            page.append(line)
        return page

    def _searched(self, lines: list[bytes]) -> list[_Line] | Problem:
        """Read the wanted lines wherever they stand."""
        wanted = self._wanted(lines)
        if len(wanted) > MAX_SERIES:
            return Problem(
                "too_many_series",
                f"the page has {len(wanted)} series of interest, the limit is {MAX_SERIES}: "
                "point the exporter at single vLLM servers, not at an aggregating endpoint",
            )
        openmetrics = b"# EOF" in lines[-2:]
        page: list[_Line] = []
        for (at, text), last in zip_longest(wanted, self._last[: len(wanted)]):
            try:
                line = _changed(text, (at, *last[1:])) if last else None
                page.append(line or _anew(at, text, openmetrics))
            except ValueError as error:
                return _malformed(text, error)
        return page

    def _wanted(self, lines: list[bytes]) -> list[tuple[int, bytes]]:
        """Pick the lines; a page speaks one dialect, and looking for all four would cost more."""
        for prefix, expression in self._dialects:
            if any(line.startswith(prefix) for line in lines):
                wanted = _matching(lines, expression)
                if any(line.startswith(prefix) for _, line in wanted):
                    return wanted
        return _matching(lines, self._plain)


def _matching(lines: list[bytes], expression: re.Pattern[bytes]) -> list[tuple[int, bytes]]:
    match = expression.match
    return [(at, line) for at, line in enumerate(lines) if match(line)]


def _changed(text: bytes, last: _Line) -> _Line | None:
    """Read a line that differs from the last one by its value at most; None for any other."""
    at, head, before, sample = last
    if not text.startswith(head):
        return None
    if (digits := text[len(head) :]) == before:
        return last
    try:
        return at, head, digits, Sample(sample[0], sample[1], number(digits))
    except ValueError:
        return None  # perhaps a timestamp follows; if not, reading it anew tells what is wrong


def _anew(at: int, text: bytes, openmetrics: bool) -> _Line:
    """Read a line as if there had been none before."""
    end, series, digits = _split(text, openmetrics)
    return at, text[: end + 1], text[end + 1 :], Sample(*series, number(digits))


def number(digits: bytes) -> float:
    """Read a sample value as Go's ``ParseFloat`` does; raise ValueError for what it refuses."""
    word = digits.translate(None, _DECIMAL)
    if word and _WORD.fullmatch(digits) is None:
        raise ValueError(f"{_show(digits)} is not a number")
    try:
        value = float(digits)
    except ValueError:
        raise ValueError(f"{_show(digits)} is not a number") from None
    if not word and value - value != 0.0:
        raise ValueError(f"{_show(digits)} does not fit a double")
    return value


def _split(line: bytes, openmetrics: bool) -> tuple[int, Series, bytes]:
    """Say where the series of a line ends, which one it is, and the digits of its value."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"the line has {len(line)} bytes, the limit is {MAX_LINE_BYTES}")
    end, series = _series(line)
    rest = line[end:].partition(b" # {")[0] if openmetrics else line[end:]  # less an exemplar
    digits, *timestamp = _BLANKS.split(rest.strip(b" \t"))
    if len(timestamp) > 1:
        raise ValueError("expected a value and at most a timestamp behind the series")
    for one in timestamp:
        if (_SECONDS if openmetrics else _MILLISECONDS).fullmatch(one) is None:
            raise ValueError(f"{_show(one)} is not a timestamp")
    return end, series, digits


def _series(line: bytes) -> tuple[int, Series]:
    """Read name and labels; return also where they end."""
    name = _NAME.match(line)
    assert name is not None, "the filter matched a name"  # noqa: S101 - an invariant, not input
    brace = _BRACE.match(line, name.end())
    if brace is None:
        return name.end(), (name[0].decode(), NO_LABELS)
    labels: dict[str, str] = {}
    position, comma = brace.end(), True
    while comma and (label := _LABEL.match(line, position)) is not None:
        key, position, comma = label[1].decode(), label.end(), bool(label[3])
        if key in labels or key == "__name__":
            raise ValueError(f"the label {key} stands twice in one series")
        labels[intern(key)] = intern(_unescape(label[2]))  # a fleet shares most of them
        if len(labels) > MAX_LABELS:
            raise ValueError(f"the series has more than {MAX_LABELS} labels")
    close = _CLOSE.match(line, position)
    if close is None:
        raise ValueError("the label block is not written properly")
    return close.end(), (name[0].decode(), MappingProxyType(labels))


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
