"""A recorded page taken apart, so that it can be printed again with other numbers.

The recording is the only list of families, help texts, labels and buckets in the simulator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
IDENTITY = ("engine", "model_name")
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One sample line: its number is looked up under `key`, the line without its engine."""

    name: str
    labels: Labels
    key: str
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """A HELP and a TYPE line with the lines below, grouped by child (labels but for `le`)."""

    name: str
    kind: str
    head: str
    children: tuple[tuple[Line, ...], ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines, in the recording's order."""
        return tuple(line for child in self.children for line in child)


@cache
def families(template: str) -> tuple[Family, ...]:
    """Read the families of a template file beside this module, in the page's order."""
    text = (FOLDER / template).read_text(encoding="utf-8")
    blocks = text.split("# HELP ")[1:]
    return tuple(_family("# HELP " + block) for block in blocks)


def fresh_values(template: str, start_time: float) -> dict[str, float]:
    """Give every key of a template the number that a server started then begins with."""
    values = {line.key: line.value for family in families(template) for line in family.lines}
    created = {key: start_time for key in values if key.split("{")[0].endswith("_created")}
    return values | created


def key_of(name: str, labels: Labels) -> str:
    """Write `name{label="value"}` without the labels that say which engine it is."""
    kept = [f'{label}="{value}"' for label, value in labels if label not in IDENTITY]
    return f"{name}{{{','.join(kept)}}}" if kept and not name.endswith("_config_info") else name


def _family(text: str) -> Family:
    help_line, type_line, *sample_lines = text.splitlines()
    name, kind = type_line.split(" ")[2:]
    children: dict[Labels, list[Line]] = {}
    for line in map(_line, sample_lines):
        child = tuple(label for label in line.labels if label[0] != "le")
        children.setdefault(child, []).append(line)
    grouped = tuple(tuple(lines) for lines in children.values())
    return Family(name, kind, f"{help_line}\n{type_line}\n", grouped)


def _line(text: str) -> Line:
    series, value = text.rsplit(" ", 1)
    name = series.split("{")[0]
    labels = tuple(re.findall(r'(\w+)="([^"]*)"', series))
    return Line(name, labels, key_of(name, labels), float(value))
