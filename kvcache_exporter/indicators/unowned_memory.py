"""GPU memory that no live engine and no other process holds, on a GPU of this engine."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

LEAST_BYTES = 1 << 30
LEAST_RATIO = 0.02
MIB = 1 << 20


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Bytes on the worst GPU; the driver's own few MB and what v1 calls used are no finding."""
    told = [
        (gpu.unowned_bytes, gpu) for gpu in history.memory.latest if gpu.unowned_bytes is not None
    ]
    if not told:
        return None
    size, gpu = max(told, key=lambda one: one[0])
    if size < max(LEAST_BYTES, LEAST_RATIO * (gpu.total_bytes or 0)):
        return Indication("unowned_memory", size, False, "every GPU's memory has an owner")
    text = (
        f"{size / MIB:.0f} MiB of {gpu.uuid} are held by no live engine: end `VLLM::` processes "
        "with parent 1 (`ps -ef | grep VLLM::`); where no process is left, reset the GPU"
    )
    return Indication("unowned_memory", size, True, text, finding="unowned_gpu_memory")
