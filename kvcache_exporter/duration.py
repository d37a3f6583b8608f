"""Durations as people type them."""

from __future__ import annotations

import re

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|min|h|d|)")


def seconds(text: str) -> float:
    """Read ``90``, ``90s``, ``30m`` or ``1h30m``; raise ValueError saying what would be right."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write 90s, 30m, 3h or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def words(span: float) -> str:
    """Say *span* seconds in at most two units."""
    minutes, rest = divmod(round(span), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
