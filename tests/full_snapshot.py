"""A snapshot in which everything is known, so that every family has a row."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kvcache_exporter.model import (
    Audit,
    EngineReading,
    EngineStatus,
    Finding,
    FindingKind,
    GpuReading,
    GpuSourceReading,
    Judgement,
    Problem,
    Snapshot,
    State,
    Target,
    TargetStatus,
)

NOW = 1_790_000_000.25
UUID = "GPU-00000000-1111-2222-3333-444444444444"


def filled(cls: type[Any], **given: Any) -> Any:
    """A *cls* whose fields that may be unknown are known: 1, 2, 3... in their order."""
    numbers = {
        one.name: float(position) if "float" in str(one.type) else position
        for position, one in enumerate(fields(cls), 1)
        if str(one.type).startswith(("int |", "float |"))
    }
    return cls(**{**numbers, **given})


READING = filled(
    EngineReading,
    engine="0",
    model_name="org/model",
    pool_blocks=999,
    used_blocks=7,
    usage_ratio=7 / 999,
    cache_dtype="auto",
    prefix_caching=True,
)
JUDGEMENT = filled(
    Judgement,
    state=State.LEAK,
    since=NOW - 60,
    confidence=0.9,
    because=("blocks rise",),
    leak_active=True,
    findings=(Finding(FindingKind.HIT_RATIO_DRIFT, NOW - 30, "it fell"),),
    hit_ratio_window_seconds=3600.0,
    hit_ratio_drift=True,
    blocks_lost_per_event=(("abort", 6.5),),
)
TARGET = Target(
    "server:8000", "http://server:8000/metrics", (("namespace", "prod"), ("pod", "p-0"))
)
AUDIT = Audit(
    pid=4711,
    engine="0",
    supported=True,
    time=NOW,
    age_seconds=0.5,
    pool_blocks=999,
    free_blocks=992,
    cached_blocks=12,
    owners=(("running", 3), ("ghost", 1)),
    requests=(("running", 2),),
    oldest_seconds=(("running", 12.5),),
    orphaned_blocks=3,
    double_booked_blocks=0,
    settled_orphaned_blocks=2,
    settled_ghost_blocks=1,
    orphaned_after=(("abort", 3),),
)
ENGINE = EngineStatus(
    TARGET.name,
    "0",
    TARGET.labels,
    READING,
    JUDGEMENT,
    (UUID,),
    "0.32.0",
    hold_seconds=600.0,
    gpu_bytes=((UUID, 134_630_014_976),),
    audit=AUDIT,
)
UP = TargetStatus(TARGET, True, NOW - 1, 0.0125, (), (("timeout", 3),))
DOWN = TargetStatus(
    Target("gone:8000", "http://gone:8000/metrics"), False, None, 5.0, (Problem("refused", "?"),)
)
GPU = GpuReading(
    UUID,
    "nvml",
    index=0,
    model="NVIDIA H200",
    driver_version="580.1",
    total_bytes=150_754_820_096,
    used_bytes=134_639_255_552,
    reserved_bytes=644_939_776,
    free_bytes=15_470_624_768,
)
SOURCE = GpuSourceReading(
    "nvml", NOW, True, (GPU,), expected=2, seen=1, problem=Problem("gpu_lost", "?")
)


def snapshot(**given: Any) -> Snapshot:
    known: dict[str, Any] = {
        "time": NOW,
        "cycle_duration_seconds": 0.5,
        "targets": (UP, DOWN),
        "engines": (ENGINE,),
        "gpu_sources": (SOURCE,),
        "gpus": (GPU,),
        "gpu_outside_pool_bytes": ((UUID, 1024.0),),
        "gpu_unowned_bytes": ((UUID, 2048.0),),
        "problems": (Problem("file_sd", "?"),),
    }
    return Snapshot(**{**known, **given})
