"""The names we read, as one expression for each way in which vLLM's releases prefix them."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby

_PREFIXES = (b"vllm:", b"vllm_", b"ray_vllm:", b"ray_vllm_")


@lru_cache(maxsize=8)
def expressions(
    names: frozenset[str], plain: frozenset[str]
) -> tuple[tuple[tuple[bytes, re.Pattern[bytes]], ...], re.Pattern[bytes]]:
    """Build the filters once for all targets: it takes as long as fifty scrapes."""
    own = _alternatives([name.encode() for name in names])
    others = _alternatives([name.encode() for name in plain])
    dialects = ((prefix, _named(prefix + own + b"|" + others)) for prefix in _PREFIXES)
    return tuple(dialects), _named(others)


def _named(names: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:" + names + rb")[ \t{]")


def _alternatives(names: list[bytes]) -> bytes:
    """Write names as a tree of their letters, so that the expression fails early elsewhere."""
    if not names:
        return rb"(?!)"
    longer = groupby(sorted(filter(None, names)), key=lambda name: name[:1])
    branches = [re.escape(head) + _alternatives([name[1:] for name in g]) for head, g in longer]
    if b"" not in names:
        return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
    return b"(?:" + b"|".join(branches) + b")?" if branches else b""
