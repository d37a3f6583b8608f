"""Modules import only downwards, never in a circle; judging does no I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "kvcache_exporter"
ROWS = (
    {"__main__", "cli"},
    {"serve", "look", "demo", "soak", "baseline"},
    {"outside", "pipeline", "analyze"},
    {"model", "trace", "judge_settings"},
)
"""Commands over applications over pipelines; below them all other parts, and at the bottom values.

Within a row a module may use another, as long as it does not come back."""
PARTS, VALUES = len(ROWS) - 1, len(ROWS)
PURE = {
    *("samples", "pool_size.capacity", "engines", "history", "indicators", "judge"),
    *(
        "expose",
        "metrics",
        "hosts.merge",
        "audits.answers",
        "follow",
        "explain",
        "schema",
        "model",
        "urls",
    ),
}
OUTSIDE_WORLD = {
    *("asyncio", "threading", "subprocess", "socket", "selectors", "ssl", "http", "urllib.request"),
    *("requests", "os", "time", "datetime", "random", "signal", "pynvml", "shutil", "tempfile"),
}


def module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


FILES = {module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from running(node)


def imports(path: Path) -> set[str]:
    """Everything a file imports, also inside functions; of our own modules the closest one."""
    found: set[str] = set()
    for node in running(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in names if name in FILES} or {node.module}
    return found


IMPORTS = {name: imports(path) for name, path in FILES.items()}


def part(name: str) -> str:
    """The file or folder directly below the package."""
    return name.split(".")[1] if "." in name else ""


def is_pure(name: str) -> bool:
    """Whether a module is one of PURE or below it."""
    return any(f"{name}.".startswith(f"kvcache_exporter.{pure}.") for pure in PURE)


def row(name: str) -> int:
    for number, names in enumerate(ROWS):
        if part(name) in names:
            return number if number < PARTS else VALUES
    return PARTS


def ours(name: str) -> set[str]:
    return {other for other in IMPORTS[name] if other in FILES and part(other)}


@pytest.mark.parametrize("name", FILES)
def test_a_module_imports_nothing_from_a_higher_row(name: str) -> None:
    assert not {other for other in ours(name) if row(other) < row(name)}


def test_imports_never_go_in_a_circle() -> None:
    order = TopologicalSorter({name: ours(name) for name in FILES})
    assert len(list(order.static_order())) == len(FILES)


def test_parts_never_go_in_a_circle() -> None:
    parts = {part(name) for name in FILES}
    uses = {
        one: {part(o) for n in FILES if part(n) == one for o in ours(n)} - {one} for one in parts
    }
    assert set(TopologicalSorter(uses).static_order()) == parts


def test_every_name_in_a_row_is_a_module() -> None:
    assert {name for names in ROWS for name in names} <= {part(name) for name in FILES}
    assert {f"kvcache_exporter.{pure}" for pure in PURE} <= FILES.keys()


@pytest.mark.parametrize("name", [name for name in FILES if is_pure(name)])
def test_parsing_and_judging_do_no_io_and_read_no_clock(name: str) -> None:
    assert not IMPORTS[name] & OUTSIDE_WORLD


@pytest.mark.parametrize("folder", ["engines", "gpus", "discovery", "doctor", "cli"])
def test_a_plug_in_imports_no_other_plug_in_of_its_folder(folder: str) -> None:
    plugins = {
        name
        for name in FILES
        if name.startswith(f"kvcache_exporter.{folder}.") and not name.split(".")[2].startswith("_")
    }
    assert plugins
    for name in plugins:
        assert not IMPORTS[name] & plugins


def test_no_file_is_longer_than_a_few_screens() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}
    long = {name for name, count in lines.items() if count > 250}
    assert long <= {"kvcache_exporter.model"}, "only the values that all share stand in one place"
