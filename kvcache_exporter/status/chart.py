"""Small line charts as inline SVG: no script, no external resource, readable without colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_exporter.trace import Point

WIDTH, HEIGHT = 260.0, 64.0

Value = Callable[[Point], float | None]


def chart(points: Sequence[Point], lines: Sequence[tuple[str, Value]], top: float) -> str:
    """Draw each (CSS class, value) of *points* from 0 to *top*; a gap stays a gap."""
    if len(points) < 2 or top <= 0:
        return ""
    start, span = points[0].time, max(points[-1].time - points[0].time, 1.0)
    paths = "".join(
        f'<path class="{name}" d="{_path(points, value, start, span, top)}"/>'
        for name, value in lines
    )
    hours = span / 3600.0
    label = f"last {hours:.1f} hours, 0 to {top:,.0f}"
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">'
        f"<title>{label}</title>{paths}</svg>"
    )


def _path(points: Sequence[Point], value: Value, start: float, span: float, top: float) -> str:
    steps, pen = [], "M"
    for point in points:
        height = value(point)
        if height is None:
            pen = "M"
            continue
        x = WIDTH * (point.time - start) / span
        y = (HEIGHT - 2.0) * (1.0 - min(max(height / top, 0.0), 1.0)) + 1.0
        steps.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return "".join(steps)
