"""The pool and the prefix cache on their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.simulate.pool import BlockPool
from kvcache_exporter.simulate.prefix import PrefixCache, block_hashes


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5)
    assert sorted(pool.allocate(4)) == [1, 2, 3, 4]
    assert pool.usage == 1.0


def test_more_blocks_than_free_are_refused() -> None:
    with pytest.raises(ValueError, match="asked for 5 blocks, 4 are free"):
        BlockPool(5).allocate(5)


def test_the_block_free_for_longest_is_taken_first_and_the_end_of_a_chain_before_its_start() -> (
    None
):
    pool = BlockPool(7)
    first, second = pool.allocate(3), pool.allocate(3)
    pool.release(second)
    pool.release(first)
    assert pool.allocate(6) == [*reversed(second), *reversed(first)]


def test_a_block_in_the_free_queue_can_be_taken_back_with_its_content() -> None:
    pool = BlockPool(5)
    blocks = pool.allocate(2)
    pool.release(blocks)
    pool.share(blocks[:1])
    assert pool.used_blocks == 1
    assert blocks[0] not in pool.allocate(3)


def test_a_shared_block_stays_used_until_its_last_owner_is_gone() -> None:
    pool = BlockPool(5)
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.release(blocks)
    assert pool.used_blocks == 1
    pool.release(blocks)
    assert pool.used_blocks == 0


def test_a_leaked_block_is_never_free_again() -> None:
    pool = BlockPool(3)
    pool.leak(pool.allocate(1))
    assert (pool.leaked_blocks, pool.used_blocks, pool.free_blocks) == (1, 1, 1)


def first_hashes(segments: list[tuple[int, int]], count: int, output: int = 91) -> list[int]:
    chain = block_hashes(segments, output, 16)
    return [next(chain) for _ in range(count)]


SEGMENTS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 70)), min_size=1, max_size=4)


@given(SEGMENTS, SEGMENTS)
def test_hashes_are_equal_exactly_as_far_as_the_prompts_are(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    def tokens(segments: list[tuple[int, int]], output: int) -> list[tuple[int, int]]:
        prompt = [(content, index) for content, length in segments for index in range(length)]
        return prompt + [(output, index) for index in range(320 - len(prompt))]

    blocks = 20
    token_pairs = list(zip(tokens(left, 91), tokens(right, 92), strict=True))
    equal = next((i for i, (a, b) in enumerate(token_pairs) if a != b), 320) // 16
    hashes = zip(first_hashes(left, blocks, 91), first_hashes(right, blocks, 92), strict=True)
    same = [a == b for a, b in hashes]
    assert same == [True] * equal + [False] * (blocks - equal)


def test_a_prefix_is_found_up_to_its_first_missing_block() -> None:
    cache = PrefixCache()
    for block_hash, block in [(11, 1), (12, 2), (14, 4)]:
        cache.store(block_hash, block)
    assert cache.lookup([11, 12, 13, 14]) == [1, 2]
    cache.forget([1])
    assert cache.lookup([11, 12]) == []


def test_equal_prompts_share_a_chain_and_their_outputs_do_not() -> None:
    prompt = [(1, 40), (2, 24)]
    one, other = first_hashes(prompt, 6, 91), first_hashes(prompt, 6, 92)
    assert one[:4] == other[:4]
    assert not set(one[4:]) & set(other[4:])
