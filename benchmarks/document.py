"""Puts what a command prints into a document, between the two lines that mark its place."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
END = "<!-- end -->\n"


def put(document: str, command: str, text: str) -> None:
    """Replace what *command* has put into docs/*document* before; exits where the mark is not."""
    path, begin = DOCS / document, _mark(command)
    head, found, rest = path.read_text(encoding="utf-8").partition(begin)
    if not found:
        raise SystemExit(f"{path} lacks the line {begin!r}")
    path.write_text(f"{head}{begin}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def place(path: Path, command: str) -> str:
    """Return the place of *command* in a document that is about to be written anew, as it is."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    _, found, rest = text.partition(_mark(command))
    return f"{_mark(command)}{rest.partition(END)[0] if found else ''}{END}"


def _mark(command: str) -> str:
    return f"<!-- printed by: {command} -->\n"
