"""What a benchmark prints replaces what it printed before, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import document
from benchmarks.document import put

TEXT = """before
<!-- printed by: a -->

old a
<!-- end -->
between
<!-- printed by: b -->

old b
<!-- end -->
after
"""


def test_only_the_part_of_the_command_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "DOCS", tmp_path)
    path = tmp_path / "x.md"
    path.write_text(TEXT)
    put("x.md", "b", "new b")
    put("x.md", "b", "newer b")

    assert path.read_text() == TEXT.replace("old b", "newer b")


def test_a_document_without_the_mark_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "DOCS", tmp_path)
    path = tmp_path / "x.md"
    path.write_text(TEXT)
    with pytest.raises(SystemExit, match="lacks the line"):
        put("x.md", "c", "new")
    assert path.read_text() == TEXT
