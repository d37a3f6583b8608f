"""Baselines as files: YAML that a person can read and a diff can show."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import yaml

from kvcache_exporter.baseline.picture import Picture
from kvcache_exporter.schema import OperatorError, build, parse_yaml


def save(picture: Picture, path: Path) -> None:
    """Write the whole file or nothing; raise OSError where it cannot be written."""
    text = "# kvcache-exporter baseline; compare with: kvcache-exporter baseline compare\n"
    text += yaml.safe_dump(asdict(picture), sort_keys=False)
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> Picture:
    """Read a file; raise OperatorError with all that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise OperatorError(f"{path}: cannot be read: {reason}") from None
    return build(Picture, parse_yaml(text, path.name), path.name)
