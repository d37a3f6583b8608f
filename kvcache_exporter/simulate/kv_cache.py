"""Which request has which blocks: the pool and the prefix cache together."""

from __future__ import annotations

from collections.abc import Collection

from .pool import BlockPool
from .prefix import PrefixCache
from .request import Request


class KVCache:
    """Blocks of `block_size` tokens, handed to requests as their computed tokens need them."""

    def __init__(self, num_gpu_blocks: int, block_size: int, prefix_caching: bool = True) -> None:
        self.pool = BlockPool(num_gpu_blocks)
        self.prefix = PrefixCache()
        self.block_size = block_size
        self.prefix_caching = prefix_caching

    def match(self, request: Request, tokens: int) -> list[int]:
        """Find cached blocks for the request; its last token has to be computed in any case."""
        if not self.prefix_caching:
            return []
        blocks = (tokens - 1) // self.block_size
        return self.prefix.lookup(request.block_hashes(blocks, self.block_size)[:blocks])

    def admit(self, request: Request, matched: list[int], computed_tokens: int) -> bool:
        """Give the request its cached blocks and new ones, or nothing if they do not all fit."""
        fresh = -(-computed_tokens // self.block_size) - len(matched)
        taken = sum(self.pool.is_free(block) for block in matched)
        if fresh + taken > self.pool.free_blocks:
            return False
        self.pool.share(matched)
        request.blocks = matched
        request.stored_blocks = len(matched)
        return self.extend(request, computed_tokens)

    def extend(self, request: Request, computed_tokens: int) -> bool:
        """Make room for so many computed tokens; False, and nothing changed, if there is none."""
        missing = -(-computed_tokens // self.block_size) - len(request.blocks)
        if missing > 0:
            if missing > self.pool.free_blocks:
                return False
            blocks = self.pool.allocate(missing)
            self.prefix.forget(blocks)
            request.blocks += blocks
        request.computed_tokens = computed_tokens
        if self.prefix_caching:
            self._store(request)
        return True

    def free(self, request: Request, lost: Collection[int] = ()) -> None:
        """Take the request's blocks back, all but the lost ones, which stay referenced for good."""
        kept = [block for block in request.blocks if block not in lost] if lost else request.blocks
        self.pool.release(kept)
        self.pool.leak(lost)
        request.blocks = []
        request.computed_tokens = 0
        request.stored_blocks = 0

    def lose(self, count: int) -> None:
        """Let so many free blocks get a reference that belongs to nobody."""
        blocks = self.pool.allocate(min(count, self.pool.free_blocks))
        self.prefix.forget(blocks)
        self.pool.leak(blocks)

    def _store(self, request: Request) -> None:
        full = request.computed_tokens // self.block_size
        if full > request.stored_blocks:
            hashes = request.block_hashes(full, self.block_size)
            for index in range(request.stored_blocks, full):
                self.prefix.store(hashes[index], request.blocks[index])
            request.stored_blocks = full
