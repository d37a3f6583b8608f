"""GPU memory, Xid errors and pod labels from the page of a dcgm-exporter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kvcache_exporter.gpus import Fetch, Source
from kvcache_exporter.model import GpuReading, GpuSourceReading, Problem, Sample
from kvcache_exporter.samples import Parser

MIB = 1 << 20
TOTAL, USED = "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_USED"
FREE, RESERVED = "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
XID = "DCGM_FI_DEV_XID_ERRORS"
RESTLESS = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
"""What a working GPU cannot hold still, unlike its memory, its clocks at the limit and its load."""
NAMES = (TOTAL, USED, FREE, RESERVED, XID, *RESTLESS, "DCGM_FI_DEV_GPU_TEMP")

_BLANK_INT32 = range(2147483632, 2147483648)
_BLANK_INT64 = float(9223372036854775792)
_BLANK_DOUBLE = range(140737488355328, 140737488355332)
"""Blank, not found, not supported, not permitted: ``dcgm_structs.h``, DCGM_INT32_BLANK etc."""

NO_SERIES = Problem(
    "no_dcgm_series",
    "the page has no DCGM_FI_DEV_FB_USED: check that the URL is a dcgm-exporter's /metrics, and "
    "that its counters file (-f) lists the FB fields",
)

Key = tuple[str, str | None]


def sources(fetch: Fetch, *, urls: Sequence[str] = ()) -> list[Source]:
    """One source a dcgm-exporter page."""
    return [DcgmSource(fetch, url) for url in urls]


class DcgmSource:
    """One dcgm-exporter; several are told apart by nothing but their GPUs' UUIDs."""

    name = "dcgm"

    def __init__(self, fetch: Fetch, url: str) -> None:
        self._fetch, self._url = fetch, url
        self._parser = Parser((), NAMES)
        self._expected = 0

    def read(self, now: float) -> GpuSourceReading:
        """Fetch and read the page; the fetch has a deadline of its own."""
        samples = self._samples()
        if isinstance(samples, Problem):
            problem = replace(samples, text=f"{self._url}: {samples.text}")
            expected = self._expected or None
            seen = 0 if expected else None
            return GpuSourceReading(self.name, now, False, (), expected, problem, seen)
        reading = read_page(samples, now)
        self._expected = max(self._expected, reading.seen or 0)
        return replace(reading, expected=self._expected)

    def close(self) -> None:
        """Nothing is held open."""

    def _samples(self) -> list[Sample] | Problem:
        body = self._fetch(self._url)
        return body if isinstance(body, Problem) else self._parser.parse(body)


def read_page(samples: Iterable[Sample], now: float) -> GpuSourceReading:
    """Turn the samples of one page into GPU readings; sizes on the page are MiB."""
    series = [s for s in samples if s.name.startswith("DCGM_FI_") and _label(s.labels, "UUID")]
    by_gpu: dict[Key, list[Sample]] = {}
    for sample in series:
        by_gpu.setdefault(_key(sample.labels), []).append(sample)
    sliced = {uuid for uuid, instance in by_gpu if instance is not None}
    gpus = tuple(
        _gpu(uuid, instance, of_gpu, sliced=instance is None and uuid in sliced)
        for (uuid, instance), of_gpu in by_gpu.items()
    )
    seen = len({uuid for uuid, _ in by_gpu})
    problem = None if any(s.name == USED for s in series) else NO_SERIES
    fingerprint = _fingerprint(series)
    return GpuSourceReading(
        "dcgm", now, problem is None, gpus, seen, problem, seen=seen, fingerprint=fingerprint
    )


def known(value: float) -> bool:
    """Whether DCGM knows this value; it writes large numbers for what it does not."""
    blank = value in _BLANK_INT32 or value in _BLANK_DOUBLE or value >= _BLANK_INT64
    return math.isfinite(value) and value >= 0 and not blank


def _gpu(uuid: str, instance: str | None, series: list[Sample], *, sliced: bool) -> GpuReading:
    labels = series[0].labels
    index = _label(labels, "gpu")
    workloads = {found for s in series if (found := _workload(s.labels)) is not None}
    pods = sorted({(namespace, pod) for namespace, pod, _ in workloads})
    namespace, pod = pods[0] if len(pods) == 1 else (None, None)
    container = next(iter(workloads))[2] if len(workloads) == 1 else None
    values = {s.name: s.value for s in series if known(s.value)}
    xid = values.get(XID)
    gpu = GpuReading(
        uuid if instance is None else f"MIG-{uuid}/{instance}",
        "dcgm",
        index=int(index) if index is not None and index.isdecimal() else None,
        model=_label(labels, "modelName"),
        driver_version=_label(labels, "DCGM_FI_DRIVER_VERSION"),
        parent_uuid=None if instance is None else uuid,
        instance_id=int(instance) if instance is not None and instance.isdecimal() else None,
        namespace=namespace,
        pod=pod,
        container=container,
        pods=tuple(pods),
        xid=None if xid is None else int(xid),
    )
    return gpu if sliced else _sized(gpu, values)  # slices tell it; twice would count it twice


def _sized(gpu: GpuReading, values: Mapping[str, float]) -> GpuReading:
    used, free, reserved, total = (
        int(values[name] * MIB) if name in values else None
        for name in (USED, FREE, RESERVED, TOTAL)
    )
    if total is None and used is not None and free is not None and reserved is not None:
        total = used + free + reserved
    return replace(
        gpu, total_bytes=total, used_bytes=used, free_bytes=free, reserved_bytes=reserved
    )


def _key(labels: Mapping[str, str]) -> Key:
    return _label(labels, "UUID") or "", _label(labels, "GPU_I_ID")


def _label(labels: Mapping[str, str], name: str) -> str | None:
    """Read a label in either spelling; dcgm-exporter changed some to lower case. Empty is none."""
    return labels.get(name) or labels.get(name.lower()) or None


def _workload(labels: Mapping[str, str]) -> tuple[str, str, str | None] | None:
    """(namespace, pod, container) of the workload.

    On a page that went through a Prometheus, ``pod`` is the dcgm-exporter's own and the workload
    is in ``exported_pod``.
    """
    prefix = "exported_" if "exported_pod" in labels else ""
    namespace, pod = labels.get(f"{prefix}namespace"), labels.get(f"{prefix}pod")
    return (namespace, pod, labels.get(f"{prefix}container")) if namespace and pod else None


def _fingerprint(series: list[Sample]) -> int | None:
    if not any(s.name in RESTLESS and known(s.value) for s in series):
        return None
    return hash(frozenset((s.name, frozenset(s.labels.items()), s.value) for s in series))
