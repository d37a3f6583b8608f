"""When the trend is looked for: a look costs a millisecond, so calm and certainty have fewer.

A break that is evidence is looked at again with the next block, and once it has stood three looks
in a row six blocks later; anything less, two blocks later.
"""

from __future__ import annotations

from typing import NamedTuple

from kvcache_exporter.history import History
from kvcache_exporter.indicators._floors import tell_all
from kvcache_exporter.indicators._trend import FEWEST_AFTER, Break, search
from kvcache_exporter.judge_settings import JudgeSettings

CALM_BLOCKS, CERTAIN_BLOCKS, CERTAIN_LOOKS = 2, 6, 3


class _Look(NamedTuple):
    epoch: int
    block: int
    found: Break | None
    stood: int
    """Looks in a row at which the break was evidence."""


def find_break(history: History, settings: JudgeSettings) -> Break | None:
    """The likeliest break of this epoch; None before there are enough blocks.

    What a clean idle moment came after is no loss, so an engine that rests is not searched at all;
    nor is one whose idle moments prove a loss and its rate.
    """
    clean = history.idle.clean_time - settings.block_seconds
    if history.time - clean < FEWEST_AFTER * settings.block_seconds:
        return None
    if tell_all(history, settings):
        return None
    look: _Look | None = history.memo.get("break")
    if look is None or _is_due(look, history):
        look = history.memo["break"] = _look(look, history, settings)
    return None if look.found is not None and look.found.since < clean else look.found


def stands(found: Break, history: History, settings: JudgeSettings) -> bool:
    """Whether a break is evidence."""
    least = settings.trend_hold_score if history.hold_seconds else settings.trend_score
    return found.objection is None and found.score >= least


def _is_due(look: _Look, history: History) -> bool:
    if look.epoch != history.epoch:
        return True
    certain = CERTAIN_BLOCKS if look.stood >= CERTAIN_LOOKS else 1
    return history.blocks.total - look.block >= (certain if look.stood else CALM_BLOCKS)


def _look(before: _Look | None, history: History, settings: JudgeSettings) -> _Look:
    found = search(history, settings)
    stood = 0
    if found is not None and stands(found, history, settings):
        stood = 1 + (before.stood if before is not None and before.epoch == history.epoch else 0)
    return _Look(history.epoch, history.blocks.total, found, stood)
