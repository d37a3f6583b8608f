"""From the usage ratio to whole blocks: exact, or not said at all."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.pool_size.capacity import AGREEING_VALUES, Claims, Dialect, Pool, update

SIZES = st.integers(2, 1_000_000)
COUNTS_NULL = (Dialect.NULL_COUNTED, Dialect.EITHER)


def usage(size: int, used: int, *, null_counted: bool) -> float:
    """What vLLM prints for a pool of *size* blocks, of which *size* - 1 can be used."""
    free = size - 1 - used
    return 1 - free / size if null_counted else 1 - free / (size - 1)


def follow(claims: Claims, ratios: Sequence[float], *, idle: bool = False) -> Pool:
    pool = Pool()
    for ratio in ratios:
        pool = update(pool, claims, ratio, idle)
    return pool


@given(SIZES, st.data(), st.sampled_from(Dialect))
def test_a_true_label_gives_exact_blocks_at_once(
    size: int, data: st.DataObject, dialect: Dialect
) -> None:
    used = data.draw(st.integers(0, size - 1))
    if dialect is Dialect.V0:  # no null block: all of them can be used
        ratio, usable = 1 - (size - used) / size, size
    else:
        null_counted = dialect in COUNTS_NULL and (
            dialect is Dialect.NULL_COUNTED or data.draw(st.booleans())
        )
        ratio, usable = usage(size, used, null_counted=null_counted), size - 1
    pool = follow(Claims(label_blocks=size, dialect=dialect), [ratio])
    if size > 2:  # of two blocks, half may be one of either
        assert (pool.blocks, pool.used(ratio)) == (usable, used)


@given(st.integers(3, 200_000), st.integers(2, 16), st.data())
def test_a_label_summed_over_engines_gives_each_its_own(
    size: int, engines: int, data: st.DataObject
) -> None:
    claims = Claims(label_blocks=size * engines, counted_over=(engines,))
    used = data.draw(st.integers(0, size - 1))
    ratio = usage(size, used, null_counted=False)
    pool = follow(claims, [ratio])
    assert (pool.blocks, pool.used(ratio)) == (size - 1, used)


@given(st.integers(100, 100_000), st.integers(2, 100_000), st.data())
def test_a_token_capacity_that_is_no_number_of_blocks_does_not_deceive(
    size: int, token_blocks: int, data: st.DataObject
) -> None:
    """Hybrid models hold more tokens, or fewer, than blocks times block size."""
    used = data.draw(st.integers(0, size - 1))
    ratio = usage(size, used, null_counted=False)
    pool = follow(Claims(label_blocks=size, token_blocks=token_blocks), [ratio])
    assert (pool.blocks, pool.used(ratio)) == (size - 1, used)


@given(st.integers(100, 100_000), st.data())
def test_the_token_capacity_gives_the_pool_where_no_label_does(
    size: int, data: st.DataObject
) -> None:
    used = data.draw(st.integers(0, size - 1))
    ratio = usage(size, used, null_counted=False)
    pool = follow(Claims(token_blocks=size), [ratio])
    assert (pool.blocks, pool.used(ratio)) == (size - 1, used)


@settings(derandomize=True)
@given(
    st.integers(100, 150_000),
    st.integers(),
    st.sampled_from(Dialect),
    st.none() | st.integers(50, 200_000),
)
def test_a_pool_that_no_label_tells_is_recovered_exactly(
    size: int, seed: int, dialect: Dialect, wrong_label: int | None
) -> None:
    """Also where the label is wrong: it is overruled by the ratios."""
    chance = random.Random(seed)
    null_counted = dialect is Dialect.NULL_COUNTED
    counts = [chance.randrange(1, size - 1) for _ in range(80)]
    ratios = [usage(size, used, null_counted=null_counted) for used in counts]
    if dialect is Dialect.V0:
        ratios = [1 - (size - used) / size for used in counts]
    if dialect is Dialect.EITHER:  # only an empty engine tells whether the null block counts
        ratios.insert(70, usage(size, 0, null_counted=False))
    pool = follow(Claims(label_blocks=wrong_label, dialect=dialect), ratios)
    assert pool.blocks == (size if dialect is Dialect.V0 else size - 1)
    assert pool.used(ratios[-1]) == counts[-1]


@settings(derandomize=True)
@given(st.integers(200, 20_000), st.integers(1, 50), st.integers())
def test_engines_of_different_sizes_under_one_sum_are_told_apart(
    size: int, difference: int, seed: int
) -> None:
    chance = random.Random(seed)
    claims = Claims(label_blocks=2 * size + difference, counted_over=(2,))
    for one in (size, size + difference):
        counts = [chance.randrange(1, one - 1) for _ in range(80)]
        pool = follow(claims, [usage(one, used, null_counted=False) for used in counts])
        assert (pool.blocks, pool.used(usage(one, 7, null_counted=False))) == (one - 1, 7)


def test_the_first_idle_reading_tells_the_null_block_where_two_conventions_are_possible() -> None:
    claims = Claims(dialect=Dialect.EITHER)
    ratios = [usage(1009, used, null_counted=True) for used in range(100, 130)]
    pool = follow(claims, ratios)
    assert (pool.blocks, pool.used(ratios[-1])) == (None, None)
    pool = update(pool, claims, 1 / 1009, True)
    assert (pool.blocks, pool.used(ratios[-1])) == (1008, 129)


def test_a_gauge_before_its_first_step_does_not_decide_about_the_null_block() -> None:
    claims = Claims(label_blocks=1000, dialect=Dialect.NULL_COUNTED)
    pool = follow(claims, [0.0, usage(1000, 7, null_counted=True)], idle=True)
    assert (pool.blocks, pool.used(usage(1000, 7, null_counted=True))) == (999, 7)


def test_a_ratio_that_repeats_itself_proves_nothing() -> None:
    pool = follow(Claims(), [100 / 997] * (AGREEING_VALUES * 3))
    assert pool.blocks is None


def test_a_ratio_that_no_pool_can_give_is_not_turned_into_blocks() -> None:
    pool = follow(Claims(label_blocks=1000), [7 / 999])
    assert pool.used(0.123456789) is None


def test_a_changed_label_starts_anew() -> None:
    pool = follow(Claims(label_blocks=1000), [7 / 999])
    pool = update(pool, Claims(label_blocks=2000), 7 / 1999, False)
    assert (pool.blocks, pool.used(7 / 1999)) == (1999, 7)


def test_an_engine_without_attention_has_no_pool() -> None:
    assert follow(Claims(label_blocks=1), [0.0]).blocks is None


@pytest.mark.parametrize("decimals", [3, 4])
def test_a_ratio_rounded_for_people_gives_the_nearest_count(decimals: int) -> None:
    pool = follow(Claims(label_blocks=1000), [round(7 / 999, decimals)])
    assert pool.used(round(7 / 999, decimals)) == 7
