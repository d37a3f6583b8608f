"""The block pool: reference counts, and a free queue in least-recently-used order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """`num_gpu_blocks` blocks, of which block 0 is the null block that nobody ever gets.

    As in vLLM, a block without a reference is free even while its content is still cached: it
    waits in the free queue and can be taken out again by whoever needs that content.
    """

    def __init__(self, num_gpu_blocks: int) -> None:
        self.num_gpu_blocks = num_gpu_blocks
        self.ref_counts = [0] * num_gpu_blocks
        self.leaked: dict[int, int] = {}
        """References that nobody will give back, by block."""
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_gpu_blocks))

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can have: all but the null block."""
        return self.num_gpu_blocks - 1

    @property
    def free_blocks(self) -> int:
        """Blocks without a reference, cached or not."""
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        """Blocks with at least one reference."""
        return self.usable_blocks - len(self._free)

    @property
    def leaked_blocks(self) -> int:
        """Blocks that would stay used if every request ended now."""
        return len(self.leaked)

    @property
    def usage(self) -> float:
        """What vLLM prints, computed in its order of operations so that every bit is the same."""
        return 1.0 - len(self._free) / self.usable_blocks if self.usable_blocks else 0.0

    def is_free(self, block: int) -> bool:
        """Whether nobody holds the block."""
        return not self.ref_counts[block]

    def allocate(self, count: int) -> list[int]:
        """Take the `count` blocks that were free for longest; ValueError when there are fewer."""
        if count > len(self._free):
            raise ValueError(f"asked for {count} blocks, {len(self._free)} are free")
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self.ref_counts[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add one owner to each of these blocks, cached and perhaps free."""
        for block in blocks:
            if not self.ref_counts[block]:
                del self._free[block]
            self.ref_counts[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Take one owner from each block; the last ones of a chain become reusable first."""
        for block in reversed(blocks):
            self.ref_counts[block] -= 1
            if not self.ref_counts[block]:
                self._free[block] = None

    def leak(self, blocks: Iterable[int]) -> None:
        """Forget to release: the owner goes away, its references stay for good."""
        for block in blocks:
            self.leaked[block] = self.leaked.get(block, 0) + 1
