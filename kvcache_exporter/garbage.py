"""When the garbage collector runs: between two cycles, when enough has piled up, over what is new.

Left alone it runs in the middle of a cycle, walks the history of all engines and holds Python's
lock all the while, so that every client of our port waits. What we do leaves it next to nothing to
find: errors go with their tracebacks, and connections are untied. Only TLS ties knots of its own.
"""

from __future__ import annotations

import asyncio
import gc

PILE = 100_000
"""Objects more than at the last collection: some 10 MB."""
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


def untie(transport: asyncio.BaseTransport) -> None:
    """Let a transport that was aborted go without the collector.

    asyncio's holds a bound method of itself: a knot for each connection.
    """
    vars(transport).pop("_read_ready_cb", None)
