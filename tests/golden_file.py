"""What the ``golden`` fixture is, for annotations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Golden = Callable[[Path, str], None]
"""Compares a text with a file; with ``--update`` it writes the file first."""
