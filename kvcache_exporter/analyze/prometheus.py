"""A Prometheus server that already scraped vLLM: raw vLLM series over a range of time.

A server answers at most 11,000 points a series, so the range is cut into chunks. It also repeats
the last value for five minutes after a target vanished; ``timestamp()`` tells those repetitions
from real scrapes, and they are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import requests

from kvcache_exporter.analyze.frame import Frame, InputError
from kvcache_exporter.engines import vllm
from kvcache_exporter.model import Sample

MAX_POINTS = 10_000
TIMEOUT_SECONDS = 120.0
PREFIXES = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
IDENTITY = ("instance", "job", "namespace", "pod", "cluster")
"""Labels that tell targets apart; all others but ``engine`` and the metric's own are dropped."""
STALE_STEPS = 2.5
"""A value older than this many steps is a repetition."""

Key = tuple[str, ...]
Get = Callable[[str, Mapping[str, str | float]], Any]
"""Path and parameters to the ``data`` of the answer."""


def frames(
    url: str,
    start: float,
    end: float,
    step_seconds: float = 15.0,
    selector: str = "",
    session: requests.Session | None = None,
) -> Iterator[Frame]:
    """Yield frames of all vLLM targets between *start* and *end* (Unix seconds), oldest first.

    *selector* narrows the targets, for example ``namespace="prod"``. Raise ``InputError`` when
    the server cannot be reached or answers with an error.
    """
    if not start < end:
        raise InputError("the start of the range must lie before its end")
    get = _getter(url.rstrip("/"), session or requests.Session())
    found = False
    for first, last in _chunks(start, end, step_seconds):
        rows = _rows(get, selector, first, last, step_seconds)
        for time, target in sorted(rows):
            found = True
            yield Frame(time, target, rows[time, target])
    if not found:
        raise InputError(
            f"{url} has no vLLM series in this range: check that it scrapes vLLM's /metrics, "
            "and the times given"
        )


def _chunks(start: float, end: float, step: float) -> Iterator[tuple[float, float]]:
    while start <= end:
        last = min(end, start + step * (MAX_POINTS - 1))
        yield start, last
        start = last + step


def _getter(url: str, session: requests.Session) -> Get:
    def get(path: str, parameters: Mapping[str, str | float]) -> Any:
        try:
            answer = session.get(f"{url}{path}", params=parameters, timeout=TIMEOUT_SECONDS)
            body = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise InputError(f"{url} does not answer as Prometheus does: {error}") from error
        if not isinstance(body, dict) or body.get("status") != "success":
            raise InputError(f"{url} refused the query: {body.get('error', answer.status_code)}")
        return body["data"]

    return get


def _rows(
    get: Get, selector: str, start: float, end: float, step: float
) -> dict[tuple[float, str], list[Sample]]:
    names = "|".join(f"(?:{'|'.join(PREFIXES)}){name}" for name in ("(?:" + _names() + ")",))
    vllm_series = f'{{__name__=~"{names}"{"," + selector if selector else ""}}}'
    running = f'{{__name__=~"(?:{"|".join(PREFIXES)})num_requests_running"}}'
    series = _query(get, vllm_series, start, end, step)
    targets = {_target(metric) for metric, _ in series}
    for name in sorted(vllm.PLAIN):
        query = f"{name} and on (instance, job) {running}"
        series += [
            (metric | {"__name__": name}, values)
            for metric, values in _query(get, query, start, end, step)
            if _target(metric) in targets
        ]
    fresh = _fresh(get, running, start, end, step)
    rows: dict[tuple[float, str], list[Sample]] = {}
    for metric, values in series:
        _spread(metric, values, fresh, rows)
    return rows


def _names() -> str:
    return "|".join(sorted(vllm.NAMES))


def _query(
    get: Get, query: str, start: float, end: float, step: float
) -> list[tuple[dict[str, str], Sequence[Any]]]:
    parameters: dict[str, str | float] = {"query": query, "start": start, "end": end, "step": step}
    data = get("/api/v1/query_range", parameters)
    return [(dict(one["metric"]), one["values"]) for one in data["result"]]


def _fresh(get: Get, running: str, start: float, end: float, step: float) -> set[tuple[float, str]]:
    """Find the times and targets at which a real scrape lies behind the value."""
    return {
        (float(at), _target(metric))
        for metric, values in _query(get, f"timestamp({running})", start, end, step)
        for at, scraped in values
        if float(at) - float(scraped) <= STALE_STEPS * step
    }


def _spread(
    metric: Mapping[str, str],
    values: Sequence[Any],
    fresh: set[tuple[float, str]],
    rows: dict[tuple[float, str], list[Sample]],
) -> None:
    target, name = _target(metric), metric["__name__"]
    hidden = {"__name__", *IDENTITY, *(f"exported_{label}" for label in IDENTITY)}
    labels = MappingProxyType({k: v for k, v in metric.items() if k not in hidden})
    for at, value in values:
        if (float(at), target) in fresh:
            rows.setdefault((float(at), target), []).append(Sample(name, labels, float(value)))


def _target(metric: Mapping[str, str]) -> str:
    """Name the target readably, the same for all of its series."""
    pod = metric.get("pod") or metric.get("exported_pod")
    place = "/".join(filter(None, (metric.get("namespace"), pod)))
    return "/".join(filter(None, (metric.get("job"), place, metric.get("instance")))) or "vllm"
