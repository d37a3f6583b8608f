"""Tables: a CSV with one scrape a row; ``_columns`` says which column is which.

An empty field means that the scrape does not say; a row with nothing but a time is a scrape that
failed. ``target`` and ``engine`` columns put several engines into one file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from kvcache_exporter.analyze._columns import FLAGS, RATES, Column, column
from kvcache_exporter.analyze.exact import Unrounding
from kvcache_exporter.analyze.frame import Frame, InputError
from kvcache_exporter.model import Problem, Sample

EXAMPLE = "t_seconds,running,waiting,usage"
Row = tuple[int, list[str]]
"""Line number and fields."""


def frames(path: Path) -> Iterator[Frame]:
    """Yield a frame a time and target; raise ``InputError`` for a line that cannot be read."""
    header, rows = _read(path)
    yield from _Table(path, header, rows).frames()


def ignored(path: Path) -> tuple[str, ...]:
    """Headers of the columns that nothing is read from."""
    header, _ = _read(path)
    return tuple(one.header for one in header if one.kind == "ignored")


def _read(path: Path) -> tuple[list[Column], list[Row]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text: {error}") from error
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(lines, delimiter=delimiter)
    rows = [(reader.line_num, fields) for fields in reader if any(map(str.strip, fields))]
    header = [column(i, name) for i, name in enumerate(rows[0][1])] if rows else []
    if not any(one.kind == "time" for one in header):
        raise InputError(
            f"{path}: the first line names no time column; begin with a header such as {EXAMPLE}"
        )
    if not any(one.kind in ("sample", "rate") for one in header):
        raise InputError(f"{path}: no column of the header is a known metric; try {EXAMPLE}")
    return header, rows[1:]


@dataclass(slots=True)
class _Totals:
    """Counters summed up from rates, for one engine."""

    time: float
    totals: dict[str, float] = field(default_factory=dict)


class _Table:
    """One file while it is read."""

    def __init__(self, path: Path, header: Sequence[Column], rows: Sequence[Row]) -> None:
        self.path, self.rows = path, rows
        self.time = next(one for one in header if one.kind == "time")
        self.words = [one for one in header if one.kind == "word"]
        self.info = [one for one in header if one.kind == "info"]
        self.rates = [one for one in header if one.kind == "rate"]
        self.flags = [one for one in header if one.kind == "flag"]
        self.samples = [one for one in header if one.kind == "sample"]
        self.usage = next((one for one in header if one.name.endswith("cache_usage_perc")), None)
        self.blocks = next((one for one in header if one.name == "num_gpu_blocks"), None)
        self.labels: dict[tuple[str, ...], dict[str, Mapping[str, str]]] = {}
        self.totals: dict[tuple[str, ...], _Totals] = {}
        self.exact = self._unrounding()

    def frames(self) -> Iterator[Frame]:
        """Rows of one time and target (several engines) become one frame."""
        pending: dict[str, dict[str, list[Sample]]] = {}
        now: float | None = None
        for row in self.rows:
            time, words = self._time(row), self._words(row)
            target = words.get("target") or self.path.name.removesuffix(".csv")
            engine = words.get("engine", "0")
            if now is not None and (time != now or engine in pending.get(target, ())):
                yield from _flush(now, pending)
                pending = {}
            now = time
            samples = list(self._samples(row, time, target, words))
            pending.setdefault(target, {})[engine] = samples
        if now is not None:
            yield from _flush(now, pending)

    def _unrounding(self) -> Unrounding:
        if self.usage is None or self.blocks is None:
            return Unrounding.of((), ())
        pairs = [
            (text, self._number(row, self.blocks))
            for row in self.rows
            if (text := _field(row, self.usage)) and self._number(row, self.usage) is not None
        ]
        return Unrounding.of([text for text, _ in pairs], [size for _, size in pairs])

    def _time(self, row: Row) -> float:
        text = _field(row, self.time)
        try:
            return float(text)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self._error(row, self.time, "seconds or an ISO 8601 time") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def _words(self, row: Row) -> dict[str, str]:
        return {one.name: text for one in self.words if (text := _field(row, one))}

    def _number(self, row: Row, one: Column) -> float | None:
        text = _field(row, one)
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise self._error(row, one, "a number, or nothing where it is unknown") from None

    def _error(self, row: Row, one: Column, right: str) -> InputError:
        found = _field(row, one)
        return InputError(
            f"{self.path} line {row[0]}: {one.header} is {found!r}; it must be {right}"
        )

    def _samples(
        self, row: Row, time: float, target: str, words: Mapping[str, str]
    ) -> Iterator[Sample]:
        engine = words.get("engine", "0")
        known = self.labels.setdefault((engine, words.get("model_name", "")), {})
        blocks = self._number(row, self.blocks) if self.blocks else None
        said = False
        for one in self.samples:
            value = self._number(row, one)
            if value is None:
                continue
            said = True
            if one is self.usage:
                value = self.exact.restore(value, blocks)
            yield Sample(one.name, _labels(known, one, words, engine), value)
        said |= any(_field(row, one) for one in self.rates)
        if said:
            yield from self._derived(row, time, (target, engine))
            yield from self._described(row, known, engine)

    def _derived(self, row: Row, time: float, key: tuple[str, ...]) -> Iterator[Sample]:
        engine = MappingProxyType({"engine": key[1]})
        sums = self.totals.setdefault(key, _Totals(time))
        for one in self.rates:
            rate = self._number(row, one) or 0.0
            total = sums.totals.get(one.name, 0.0) + rate * max(0.0, time - sums.time)
            sums.totals[one.name] = total
            yield Sample(f"vllm:{RATES[one.name]}", engine, total)
        sums.time = time
        for one in self.flags:
            value = self._number(row, one)
            if one.name == "connector" and value:
                yield Sample(f"vllm:{FLAGS[one.name]}", engine, 0.0)
            elif one.name == "sleeping" and value is not None:
                labels = MappingProxyType({**engine, **one.labels})
                yield Sample(f"vllm:{FLAGS[one.name]}", labels, float(not value))

    def _described(
        self, row: Row, known: dict[str, Mapping[str, str]], engine: str
    ) -> Iterator[Sample]:
        facts = tuple(_whole(_field(row, one)) for one in self.info)
        if not any(facts):
            return
        key = f"{facts}"
        if key not in known:
            named = {one.name: fact for one, fact in zip(self.info, facts, strict=True) if fact}
            known[key] = MappingProxyType({"engine": engine, **named})
        yield Sample("vllm:cache_config_info", known[key], 1.0)


def _flush(time: float, pending: Mapping[str, Mapping[str, list[Sample]]]) -> Iterator[Frame]:
    for target, engines in pending.items():
        samples = [sample for one in engines.values() for sample in one]
        empty = Problem("down", "the row has no values: this scrape failed")
        yield Frame(time, target, samples or empty)


def _labels(
    known: dict[str, Mapping[str, str]], one: Column, words: Mapping[str, str], engine: str
) -> Mapping[str, str]:
    labels = known.get(one.header)
    if labels is None:
        model = {"model_name": words["model_name"]} if "model_name" in words else {}
        plain = not one.name.startswith("vllm:")
        labels = MappingProxyType({**one.labels, **({} if plain else {"engine": engine, **model})})
        known[one.header] = labels
    return labels


def _field(row: Row, one: Column) -> str:
    fields = row[1]
    return fields[one.index].strip() if one.index < len(fields) else ""


def _whole(text: str) -> str:
    """Undo a spreadsheet: its ``8192.0`` is vLLM's ``8192``."""
    number, _, rest = text.partition(".")
    return number if rest.strip("0") == "" else text
