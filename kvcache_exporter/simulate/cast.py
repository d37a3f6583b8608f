"""The demo's cast: one server for each thing that can be true of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .config import NIXL, PLAIN, EngineConfig, Speed
from .engine import Engine
from .leaks import Leak
from .workload import Workload

HOUR = 3600.0
STORY_SECONDS = 28 * HOUR + 600
"""A day to learn what is usual, some hours for a drift to show; ten minutes past the hour."""
LATE_SECONDS = 20 * HOUR
"""When those who need no day to be understood are deployed, which makes the demo short."""

USUAL = EngineConfig(num_gpu_blocks=2048, block_size=64, step_seconds=5.0)
"""Coarse blocks and steps, so that a day passes in seconds."""


@dataclass(frozen=True, slots=True)
class Member:
    """One server of the cast; seconds in its configuration count from its deployment on."""

    name: str
    story: str
    config: EngineConfig
    workload: Workload
    events: tuple[tuple[float, Callable[[Engine], None]], ...] = ()
    """(seconds, what the engine does then)."""
    deployed_seconds: float = 0.0


_BIG = Speed(decode_tokens_per_second=12)
_LATE = (
    Member(
        "chat-steady",
        "healthy: never idle, busier by day",
        replace(USUAL, model_name="llama-3.3-70b-instruct", speed=_BIG),
        Workload(0.12, daily_swing=0.3, output_tokens=500),
    ),
    Member(
        "code-bursty",
        "healthy: bursts, idle between them",
        replace(USUAL, model_name="qwen2.5-coder-7b"),
        Workload(0.15, busy_seconds=700, quiet_seconds=500),
    ),
    Member(
        "agents-leaking",
        "loses the blocks of some requests whose client hung up",
        replace(USUAL, model_name="mistral-small-24b", leaks=(Leak("abort", 0.2, None, HOUR),)),
        Workload(0.12, busy_seconds=700, quiet_seconds=500, abort_share=0.12),
    ),
    Member(
        "summary-leaking-busy",
        "loses blocks at finished requests and is never idle",
        replace(
            USUAL,
            model_name="llama-3.3-70b-instruct",
            speed=_BIG,
            leaks=(Leak("finish", 0.2, 1, HOUR),),
        ),
        Workload(0.12, output_tokens=500, abort_share=0.0),
    ),
    Member(
        "batch-saturated",
        "healthy, but asked for more than fits",
        replace(
            USUAL,
            model_name="deepseek-r1-distill-70b",
            num_gpu_blocks=200,
            max_num_queued_reqs=60,
            speed=Speed(decode_tokens_per_second=3),
        ),
        Workload(
            0.6,
            spread=0.3,
            prompt_tokens=400,
            output_tokens=150,
            shared_share=0.0,
            abort_share=0.0,
        ),
    ),
    Member(
        "vision-stalled",
        "stops completing requests while clients keep asking",
        replace(USUAL, model_name="qwen2-vl-7b", max_num_queued_reqs=10_000),
        Workload(0.1),
        ((2 * HOUR, Engine.stall),),
    ),
    Member(
        "prefill-held",
        "holds blocks until a decode engine has read them",
        replace(USUAL, model_name="deepseek-v2-lite", hold_seconds=480, templates=(*PLAIN, NIXL)),
        Workload(0.2, busy_seconds=300, quiet_seconds=3300, output_tokens=2, spread=0.3),
    ),
    Member(
        "night-asleep",
        "put to sleep by its operator",
        replace(USUAL, model_name="phi-4"),
        Workload(0.1),
        ((3 * HOUR, Engine.sleep),),
    ),
)
_DRIFTING = Member(
    "rag-drifting",
    "healthy, but prompts stop sharing their prefixes",
    replace(USUAL, model_name="qwen2.5-14b-instruct"),
    Workload(
        0.12,
        prompt_tokens=200,
        prefix_tokens=1024,
        shared_share=0.9,
        shared_share_later=0.2,
        drift_seconds=STORY_SECONDS - 3 * HOUR,
    ),
)


def demo_cast() -> tuple[Member, ...]:
    """Cast the demo: one that is judged by its usual day, and the others deployed late."""
    return (_DRIFTING, *(replace(member, deployed_seconds=LATE_SECONDS) for member in _LATE))
