"""When the garbage collector runs: between two cycles, when enough has piled up, over what is new.

Left alone it runs in the middle of a cycle and walks the history of all engines: with 1,000 of them
that takes a sixth of our CPU and holds Python's lock for up to 400 ms, while every client of our
port waits. Healthy engines leave it nothing to find. A failed scrape leaves about 13 objects (the
error and its traceback), an answered client 8.
"""

from __future__ import annotations

import gc

PILE = 100_000
"""Objects more than at the last collection: some 10 MB, in a hundred cycles or in six bad ones."""
MOST = 500_000
"""At so many Python collects on its own, in the middle of a cycle: a flood of clients, mostly."""
WHOLE_CYCLES = 360
"""How often everything is looked at whatever its age: an hour of 10 s cycles."""


def begin() -> None:
    """Put the collections off that would come in the middle of a cycle."""
    gc.set_threshold(MOST)


def between_cycles(cycle: int) -> None:
    """Collect if it is time to; what survives is set aside and only looked at once an hour."""
    whole = cycle % WHOLE_CYCLES == WHOLE_CYCLES - 1
    if whole:
        gc.unfreeze()
    if whole or gc.get_count()[0] > PILE:
        gc.collect()
        gc.freeze()
