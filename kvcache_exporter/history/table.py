"""A bounded table of numbers: the newest rows of fixed columns, in one compact array."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Literal

NAN = math.nan


@cache
def _packer(width: int) -> Callable[..., None]:
    """Writes a row of 8-byte numbers in place, without an array made for it as a slice needs."""
    return Struct(f"{width}d").pack_into


class Table:
    """The last ``capacity`` rows, oldest first when read; NaN = the row does not say.

    ``typecode`` is that of ``array``: "f" keeps about 7 digits in 4 bytes, "d" 15 in 8.
    """

    __slots__ = ("_overwrite", "capacity", "columns", "data", "total", "typecode")

    def __init__(
        self, columns: tuple[str, ...], capacity: int, typecode: Literal["f", "d"] = "f"
    ) -> None:
        self.columns = columns
        self.capacity = capacity
        self.typecode: Literal["f", "d"] = typecode
        self.data: array[float] = array(typecode)
        self.total = 0
        """Rows ever appended, so that a reader can tell that something was added."""
        self._overwrite = _packer(len(columns)) if typecode == "d" else None

    def __len__(self) -> int:
        return len(self.data) // len(self.columns)

    def append(self, row: Sequence[float]) -> None:
        """Add one row, at the price of the oldest once the table is full."""
        width = len(self.columns)
        if len(row) != width:
            raise ValueError(f"{len(row)} values for {width} columns")
        full = self.capacity * width
        if len(self.data) < full:
            self.data.extend(row)
            if len(self.data) == full:
                self.data = self.data[:]  # as it will not grow any more, without room to grow
        else:
            at = (self.total % self.capacity) * width
            if self._overwrite is not None:
                self._overwrite(self.data, at * self.data.itemsize, *row)
            else:  # struct refuses what 4 bytes cannot hold
                self.data[at : at + width] = array(self.typecode, row)
        self.total += 1

    def column(self, name: str) -> array[float]:
        """All values of a column, oldest first."""
        index, width = self.columns.index(name), len(self.columns)
        values = self.data[index::width]
        start = self.total % self.capacity if len(values) == self.capacity else 0
        return values[start:] + values[:start] if start else values

    def row(self, index: int) -> list[float]:
        """One row, 0 = the oldest."""
        width = len(self.columns)
        full = len(self.data) == self.capacity * width
        at = ((self.total + index) % self.capacity if full else index) * width
        return list(self.data[at : at + width])

    def last(self, name: str, back: int = 0) -> float:
        """Value ``back`` rows before the newest, NaN when there is none."""
        width = len(self.columns)
        if back * width >= len(self.data):
            return NAN
        row = (self.total - 1 - back) % self.capacity
        return self.data[row * width + self.columns.index(name)]

    def set_last(self, name: str, value: float) -> None:
        """Change one value of the newest row."""
        row = (self.total - 1) % self.capacity
        self.data[row * len(self.columns) + self.columns.index(name)] = value

    def add_to_last(self, row: Sequence[float]) -> None:
        """Add to each value of the newest row."""
        width = len(self.columns)
        at = ((self.total - 1) % self.capacity) * width
        for index, value in enumerate(row, at):
            self.data[index] += value

    def clear(self) -> None:
        """Forget all rows."""
        del self.data[:]
        self.total = 0
