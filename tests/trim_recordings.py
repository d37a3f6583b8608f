"""Cut recordings down to the series that are read: ``python tests/trim_recordings.py FROM INTO``.

Whole recordings are up to 80 times the size, and what is left out is never looked at.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from kvcache_exporter.engines import vllm


def trim(body: str) -> str:
    """Return the lines of *body* that the exporter reads."""
    return "".join(f"{line}\n" for line in body.split("\n") if _is_read(line))


def _is_read(line: str) -> bool:
    name = line.partition("{")[0].partition(" ")[0]
    return name.removeprefix("vllm:") in vllm.NAMES or name in vllm.PLAIN


def entries(path: Path) -> list[dict[str, object]]:
    """Return the lines of a recording as they are."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def trimmed(path: Path) -> list[dict[str, object]]:
    """Return the lines of a recording, each page cut down."""
    return [
        {**entry, "body": trim(entry["body"])} if isinstance(entry["body"], str) else entry
        for entry in entries(path)
    ]


def main(source: Path, into: Path) -> None:
    for path in sorted(source.glob("*.jsonl.gz")):
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in trimmed(path))
        (into / path.name).write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
