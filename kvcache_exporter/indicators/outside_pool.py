"""GPU memory outside the KV pool that grows and does not settle."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.history import History
from kvcache_exporter.history.growth import growth
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, Judgement

EVERY_SECONDS = 60.0
LEAST_BYTES = 256 << 20
LEAST_RATIO = 0.005
MIB = 1 << 20


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Growth in bytes since warm-up, by GPU in ``details``; the value is that of the worst."""
    rises: dict[str, float | None] = {}
    growing = []
    for (uuid, _, _), watch in history.memory.gpus.items():
        if (risen := watch.risen_bytes) is not None:
            rises[uuid] = max(0.0, risen)
        least = max(LEAST_BYTES, LEAST_RATIO * history.memory.totals[uuid])
        times, floors = watch.floors.column("time"), watch.floors.column("bytes")
        if (found := growth(times, floors, least)) is not None:
            growing.append((found, uuid))
    if not rises and not growing:
        return None
    worst = max((risen for risen in rises.values() if risen is not None), default=None)
    if not growing:
        text = "GPU memory outside the KV pool has settled"
        return Indication("outside_pool", worst, False, text, details=rises)
    found, uuid = max(growing)
    text = (
        f"memory outside the KV pool of {uuid} grew by {found.bytes / MIB:.0f} MiB in the last "
        f"{found.seconds / 3600:.1f} h and keeps its pace: not the KV cache; look at "
        "allocations of the worker (LoRA adapters, multi-modal inputs, CUDA graphs), and compare "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    )
    return Indication(
        "outside_pool", worst, True, text, details=rises, finding="outside_pool_growth"
    )


def outside_pool_bytes(judgements: Iterable[Judgement]) -> tuple[tuple[str, float], ...]:
    """(uuid, bytes) risen since warm-up; engines that share a GPU add up."""
    found = [one for each in judgements for one in each.indications if one.name == "outside_pool"]
    rises: dict[str, float] = {}
    for uuid, risen in (rise for one in found for rise in one.details.items()):
        rises[uuid] = rises.get(uuid, 0.0) + (risen or 0.0)
    return tuple(rises.items())
