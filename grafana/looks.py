"""What things look like: one text and one colour for each state, and thresholds as colours.

No meaning hangs on a colour alone, and no two neighbours differ in red against green only.
"""

from __future__ import annotations

from typing import Any

from kvcache_exporter.model import State

Json = dict[str, Any]

BLUE = "#5794F2"
SKY = "#8AB8FF"
ORANGE = "#FF9830"
VERMILION = "#F2495C"
YELLOW = "#F2CC0C"
PURPLE = "#B877D9"
PINK = "#FF85C0"
GREY = "#8E8E8E"
STEEL = "#9FA7B3"
DIM = "#4A4D55"

STATE_LOOKS = {
    State.NO_DATA: ("No data", GREY),
    State.UNTRUSTED: ("Untrusted", PURPLE),
    State.STALE: ("Frozen gauges", PINK),
    State.PAUSED: ("Paused", STEEL),
    State.STALLED: ("Stalled", "#D44FD4"),
    State.PREEMPTION_STORM: ("Preemption storm", "#FADE2A"),
    State.SATURATED: ("Saturated", SKY),
    State.HELD_IDLE: ("Held at idle", YELLOW),
    State.LEAK_SUSPECT: ("Leak suspected", ORANGE),
    State.LEAK: ("Leak", VERMILION),
    State.OK: ("OK", BLUE),
    State.UNKNOWN: ("Not known yet", "#7B8087"),
}


def states_by_code() -> list[Json]:
    """Map the numbers of `queries.state_code` to texts and colours."""
    return [_mapping({str(code): look for code, look in enumerate(STATE_LOOKS.values())})]


def states_by_name() -> list[Json]:
    """Map the values of the `state` label to texts and colours."""
    return [_mapping({str(state): look for state, look in STATE_LOOKS.items()})]


def words(looks: dict[int, tuple[str, str | None]]) -> list[Json]:
    """Map single numbers to texts, so that 0 and 1 read as what they mean."""
    return [_mapping({str(value): look for value, look in looks.items()})]


def _mapping(looks: dict[str, tuple[str, str]] | dict[str, tuple[str, str | None]]) -> Json:
    options = {
        value: {"text": text, "index": index} | ({"color": colour} if colour else {})
        for index, (value, (text, colour)) in enumerate(looks.items())
    }
    return {"type": "value", "options": options}


def steps(base: str, *above: tuple[float, str]) -> Json:
    """Colour values: *base* from the bottom up, then each colour from its value on."""
    rungs: list[Json] = [{"value": None, "color": base}]
    rungs += [{"value": value, "color": colour} for value, colour in above]
    return {"mode": "absolute", "steps": rungs}


PLAIN = steps(BLUE)
BAD_ABOVE_0 = steps(BLUE, (1, VERMILION))
NONE = words({0: ("none", BLUE)})
YES_NO = words({0: ("no", DIM), 1: ("yes", ORANGE)})
UNKNOWN_IS_GREY: list[Json] = [
    {"type": "special", "options": {"match": "null", "result": {"text": "–", "color": GREY}}}
]
"""Otherwise what is not known takes the colour of the lowest values."""
FOUND = words({1: ("found", ORANGE)})
LEAK = words({0: ("no", GREY), 1: ("yes", VERMILION)})
UP_DOWN = words({0: ("down", VERMILION), 1: ("up", BLUE)})


def full_in(thresholds: Json) -> Json:
    """Colour the time until a pool is full: from below, the page, the ticket, no hurry."""
    return steps(
        VERMILION,
        (thresholds["exhaustion_page_seconds"], ORANGE),
        (thresholds["exhaustion_ticket_seconds"], BLUE),
    )


def usage(thresholds: Json) -> Json:
    """Colour a share of the pool in use."""
    warning, critical = thresholds["usage_warning_ratio"], thresholds["usage_critical_ratio"]
    return steps(BLUE, (warning, ORANGE), (critical, VERMILION))


def preemptions(thresholds: Json) -> Json:
    """Colour preemptions per completed request."""
    warning = thresholds["preemptions_warning_ratio"]
    return steps(BLUE, (warning, ORANGE), (thresholds["preemptions_storm_ratio"], VERMILION))
