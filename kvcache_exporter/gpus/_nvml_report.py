"""From what the NVML child reports to GPU readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kvcache_exporter.gpus import _nvml_words as words
from kvcache_exporter.model import GpuProcess, GpuReading, GpuSourceReading, Problem

Report = Mapping[str, Any]


def read_report(report: Report, now: float) -> GpuSourceReading:
    """Turn one report without an overall error into readings of GPUs and MIG slices."""
    devices = report["devices"]
    cut = {device.get("parent") for device in devices} - {None}
    gpus = tuple(_gpu(device, report["driver_version"], cut) for device in devices)
    return GpuSourceReading("nvml", now, up=True, gpus=gpus)


def error_codes(report: Report) -> set[int | None]:
    """Every NVML error code in a report."""
    errors = [report["error"]] if "error" in report else []
    errors += [error for device in report.get("devices", ()) for error in device["errors"]]
    return {error["code"] for error in errors}


def counted(reading: GpuSourceReading, known: Iterable[GpuReading]) -> GpuSourceReading:
    """Add GPUs that were *known* and are missing now, and the expected and seen counts."""
    known = list(known)
    gpus = tuple(map(_told, _named(reading.gpus, [gpu.uuid for gpu in known])))
    whole = [gpu for gpu in gpus if gpu.parent_uuid is None]
    expected = max(len(whole), len(known))
    present = {gpu.uuid for gpu in whole}
    missing = [_vanished(gpu) for gpu in known if gpu.uuid not in present]
    missing = missing[: expected - len(whole)]
    seen = sum(not _gone(gpu) for gpu in whole)
    gpus += tuple(missing)
    problem = reading.problem or _source_problem(gpus, expected, seen)
    return replace(reading, gpus=gpus, expected=expected, seen=seen, problem=problem)


def without_values(gpu: GpuReading, problem: Problem) -> GpuReading:
    """Keep who a GPU is and drop what it said."""
    return GpuReading(
        gpu.uuid,
        gpu.source,
        index=gpu.index,
        model=gpu.model,
        driver_version=gpu.driver_version,
        parent_uuid=gpu.parent_uuid,
        instance_id=gpu.instance_id,
        problem=problem,
    )


def _gpu(device: Report, driver_version: str | None, cut: set[str]) -> GpuReading:
    index, errors, sliced = device["index"], device["errors"], device["uuid"] in cut
    if sliced:  # such a GPU does not answer for itself what its slices answer
        errors = [error for error in errors if error["code"] != words.NOT_SUPPORTED]
    identity = GpuReading(
        device["uuid"] or f"index-{index}",
        "nvml",
        index=index,
        model=device.get("name"),
        driver_version=driver_version,
        parent_uuid=device.get("parent"),
        instance_id=device.get("instance"),
        problem=_worst(errors),
    )
    if sliced:
        return identity  # its slices carry the memory; telling it here too would count it twice
    memory, processes = device.get("memory") or {}, device.get("processes")
    return replace(
        identity,
        total_bytes=memory.get("total"),
        used_bytes=memory.get("used"),
        reserved_bytes=memory.get("reserved"),
        free_bytes=memory.get("free"),
        processes=None if processes is None else tuple(GpuProcess(*each) for each in processes),
    )


def _worst(errors: list[Report]) -> Problem | None:
    """Pick the error that explains the others: a lost GPU before a call it does not support."""
    if not errors:
        return None
    order = (words.GPU_IS_LOST, words.RESET_REQUIRED, words.VERSION_MISMATCH, words.UNKNOWN)
    rank = {code: place for place, code in enumerate(order)}
    return words.problem(min(errors, key=lambda error: rank.get(error["code"], len(rank))))


def _told(gpu: GpuReading) -> GpuReading:
    """Say in a GPU's problem which GPU it is."""
    if gpu.problem is None:
        return gpu
    return replace(gpu, problem=replace(gpu.problem, text=f"{gpu.uuid}: {gpu.problem.text}"))


def _named(gpus: tuple[GpuReading, ...], known: list[str]) -> tuple[GpuReading, ...]:
    """Give a GPU that cannot tell its UUID the one that is missing, where only one is."""
    missing = set(known) - {gpu.uuid for gpu in gpus}
    nameless = [gpu for gpu in gpus if gpu.uuid.startswith("index-")]
    if len(missing) != 1 or len(nameless) != 1:
        return gpus
    uuid = missing.pop()
    return tuple(replace(gpu, uuid=uuid) if gpu is nameless[0] else gpu for gpu in gpus)


def _vanished(gpu: GpuReading) -> GpuReading:
    return without_values(
        gpu,
        Problem(
            "gpu_vanished",
            f"{gpu.uuid} was here and NVML does not list it any more: compare `nvidia-smi -L` and "
            "look for Xid lines in `dmesg`; restart the exporter if it was taken out on purpose",
        ),
    )


def _gone(gpu: GpuReading) -> bool:
    return gpu.problem is not None and gpu.problem.code in words.GONE


def _source_problem(gpus: tuple[GpuReading, ...], expected: int, seen: int) -> Problem | None:
    if not gpus:
        return words.NO_GPUS
    if seen == expected:
        return None
    first = next((gpu for gpu in gpus if _gone(gpu)), gpus[0])
    reason = first.uuid if first.problem is None else first.problem.text
    return Problem("gpus_missing", f"{seen} of {expected} GPUs answer; {reason}")
