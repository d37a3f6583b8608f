"""``/api/v1/engines``: what the status page shows, as JSON; docs/api.md is its schema."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from kvcache_exporter import __version__
from kvcache_exporter.audits.answers import blocks_by_owner
from kvcache_exporter.model import EngineStatus, GpuReading, Snapshot, TargetStatus


def engines_json(snapshot: Snapshot) -> bytes:
    """Return one JSON object; what is not known is null."""
    document = {
        "version": __version__,
        "time": snapshot.time,
        "engines": [_engine(one) for one in snapshot.engines],
        "targets": [_target(one) for one in snapshot.targets],
        "gpus": [_gpu(one) for one in snapshot.gpus],
        "problems": [asdict(one) for one in snapshot.problems],
    }
    return json.dumps(document, allow_nan=False, default=str).encode()


def _engine(one: EngineStatus) -> dict[str, Any]:
    reading, judgement = one.reading, one.judgement
    return {
        "target": one.target,
        "engine": one.engine,
        "labels": dict(one.labels),
        "model_name": reading.model_name if reading else None,
        "vllm_version": one.vllm_version,
        "state": judgement.state,
        "since": judgement.since,
        "confidence": judgement.confidence,
        "because": judgement.because,
        "leak_active": judgement.leak_active,
        "findings": [asdict(finding) for finding in judgement.findings],
        "pool_blocks": reading.pool_blocks if reading else None,
        "used_blocks": reading.used_blocks if reading else None,
        "running": reading.running if reading else None,
        "waiting": reading.waiting if reading else None,
        "idle_floor_blocks": judgement.idle_floor_blocks,
        "orphaned_blocks": judgement.orphaned_blocks,
        "orphaned_blocks_low": judgement.orphaned_blocks_low,
        "owners": dict(blocks_by_owner(one.audit)) if one.audit else None,
        "free_slope_per_second": judgement.free_slope_per_second,
        "exhaustion_time": judgement.exhaustion_time,
        "hit_ratio": judgement.hit_ratio,
        "hit_ratio_baseline": judgement.hit_ratio_baseline,
        "gpu_uuids": one.gpu_uuids,
        "trace": [point._asdict() for point in one.trace.points()],
    }


def _target(one: TargetStatus) -> dict[str, Any]:
    return {
        "target": one.target.name,
        "url": one.target.url,
        "up": one.up,
        "last_success_time": one.last_success_time,
        "problems": [asdict(problem) for problem in one.problems],
    }


def _gpu(one: GpuReading) -> dict[str, Any]:
    names = ("uuid", "index", "model", "source", "total_bytes", "used_bytes", "reserved_bytes")
    return {name: getattr(one, name) for name in names} | {"free_bytes": one.free_bytes}
