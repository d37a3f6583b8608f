"""Does anybody here see the GPUs, and which of them are this engine's?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level

RANK = 80


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Judge the GPU side; without GPUs the KV side is still judged, so it is never a problem."""
    last = evidence.last
    if not evidence.engines:
        return
    for problem in last.gpu_problems:
        cause, _, advice = problem.text.partition(": ")
        yield Answer("GPU source", Level.UNKNOWN, cause, advice)
    owned = {gpu.uuid for gpus in last.assignment.gpus.values() for gpu in gpus}
    for gpu in last.gpus:
        used, total = gpu.used_bytes, gpu.total_bytes
        if used is None or total is None:
            yield Answer(f"GPU {gpu.uuid}", Level.UNKNOWN, "its memory cannot be read")
        else:
            whose = "of this server" if gpu.uuid in owned else "not known to be this server's"
            text = f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB used, {whose}"
            yield Answer(f"GPU {gpu.uuid}", Level.FINE, text)
