"""The prefix cache: full blocks found again by the hash of everything up to their last token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import inf

Segment = tuple[int, int]
"""(content, tokens): a stretch of a prompt that is equal wherever the content number is.

The number is never negative: Python's hashes of -1 and -2 are the same."""


def block_hashes(segments: Sequence[Segment], output: int, block_size: int) -> Iterator[int]:
    """Yield a request's chain of block hashes: its prompt, then `output` without an end."""
    first, *rest = segments
    parent, held = _shared_chain(first, block_size)
    yield from parent
    last = parent[-1] if parent else 0
    pieces: list[tuple[int, int, int]] = [(first[0], first[1] - held, held)] if held else []
    stretches: list[tuple[int, float]] = [*rest, (output, inf)]
    for content, tokens in stretches:
        position = 0
        while tokens - position >= block_size - held:
            last = hash((last, *pieces, (content, position)))
            yield last
            position += block_size - held
            pieces, held = [], 0
        if tokens > position:
            pieces.append((content, position, int(tokens) - position))
            held += int(tokens) - position


@lru_cache(maxsize=4096)
def _shared_chain(segment: Segment, block_size: int) -> tuple[tuple[int, ...], int]:
    """Hash the full blocks of a first segment; also say how many tokens are left over."""
    content, tokens = segment
    hashes: list[int] = []
    for position in range(0, tokens - tokens % block_size, block_size):
        hashes.append(hash((hashes[-1] if hashes else 0, (content, position))))
    return tuple(hashes), tokens % block_size


class PrefixCache:
    """Which block holds the content of which hash."""

    def __init__(self) -> None:
        self._block_of: dict[int, int] = {}
        self._hash_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def lookup(self, hashes: Iterable[int]) -> list[int]:
        """Find the blocks of the longest cached prefix of these hashes."""
        found: list[int] = []
        for block_hash in hashes:
            block = self._block_of.get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def store(self, block_hash: int, block: int) -> None:
        """Remember a full block's content; a second block with the same content stays unknown."""
        if block_hash not in self._block_of:
            self._block_of[block_hash] = block
            self._hash_of[block] = block_hash

    def forget(self, blocks: Iterable[int]) -> None:
        """Evict the old content of blocks that are handed out for something new."""
        for block in blocks:
            block_hash = self._hash_of.pop(block, None)
            if block_hash is not None:
                del self._block_of[block_hash]

    def clear(self) -> None:
        """Forget everything, as a reset or a sleep does."""
        self._block_of.clear()
        self._hash_of.clear()
