"""A snapshot made by hand that shows everything: a leak, a hostile name, GPUs, problems."""

from __future__ import annotations

from kvcache_exporter.model import (
    EngineReading,
    EngineStatus,
    Finding,
    FindingKind,
    GpuReading,
    Judgement,
    Problem,
    Snapshot,
    State,
    Target,
    TargetStatus,
)
from kvcache_exporter.trace import STEP_SECONDS, Point, Trace

HOSTILE = """</script><img src=x onerror=alert(1)>"'&\u202e"""
NOW = 1_790_000_000.0


def engine(
    name: str, state: State, *, model: str = "m", orphaned: int | None = None, finding: bool = False
) -> EngineStatus:
    trace = Trace()
    for step in range(40):
        time = NOW - (40 - step) * STEP_SECONDS
        trace = trace.add(Point(time, 100.0 + step, 10.0, float(step), 7.5e10))
    findings = (Finding(FindingKind.HIT_RATIO_DRIFT, NOW - 60, "fell from 50 % to 20 %"),)
    judgement = Judgement(
        state,
        NOW - 7200,
        0.9,
        (f"because of {name}",),
        leak_active=state is State.LEAK,
        findings=findings if finding else (),
        orphaned_blocks=orphaned,
        idle_floor_blocks=orphaned,
    )
    reading = EngineReading("0", model, pool_blocks=1000, used_blocks=140, running=2.0, waiting=0.0)
    return EngineStatus(name, "0", (), reading, judgement, ("GPU-1",), "0.32.0", trace)


def snapshot(*engines: EngineStatus) -> Snapshot:
    target = Target("broken:8000", "http://broken:8000/metrics")
    problem = Problem("html", f"the answer is HTML {HOSTILE}: check the port")
    gpu = GpuReading(
        "GPU-1", "nvml", total_bytes=80 * 2**30, used_bytes=70 * 2**30, reserved_bytes=0
    )
    return Snapshot(
        time=NOW,
        cycle_duration_seconds=0.01,
        targets=(TargetStatus(target, False, None, 0.1, (problem,)),),
        engines=engines,
        gpus=(gpu,),
    )
