"""The demo's cast: one server for each thing that can be true of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .engine import NIXL, PLAIN, Engine, EngineConfig
from .leaks import Leak
from .scheduler import Speed
from .workload import Workload

HOUR = 3600.0
STORY_SECONDS = 28 * HOUR + 600
"""A day to learn what is usual, some hours for a drift to show; ten minutes past the hour."""
LATE_SECONDS = 16 * HOUR
"""When those who need no day to be understood are deployed, which makes the demo short."""
STEP_SECONDS = 5.0
"""Coarse, so that a day passes in seconds."""


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


def demo_cast() -> tuple[Member, ...]:
    """Cast the demo."""
    big = Speed(decode_tokens_per_second=12)
    life = STORY_SECONDS - LATE_SECONDS
    late = (
        Member(
            "chat-steady",
            "healthy: never idle, busier by day",
            _config("llama-3.3-70b-instruct", speed=big),
            Workload(0.12, daily_swing=0.3, output_tokens=500),
        ),
        Member(
            "code-bursty",
            "healthy: bursts, idle between them",
            _config("qwen2.5-coder-7b"),
            Workload(0.15, busy_seconds=700, quiet_seconds=500),
        ),
        Member(
            "agents-leaking",
            "loses the blocks of some requests whose client hung up",
            _config("mistral-small-24b", leaks=(Leak("abort", 0.2, None, HOUR),)),
            Workload(0.12, busy_seconds=700, quiet_seconds=500, abort_share=0.12),
        ),
        Member(
            "summary-leaking-busy",
            "loses blocks at finished requests and is never idle",
            _config("llama-3.3-70b-instruct", speed=big, leaks=(Leak("finish", 0.2, 1, HOUR),)),
            Workload(0.12, output_tokens=500, abort_share=0.0),
        ),
        Member(
            "batch-saturated",
            "healthy, but asked for more than fits",
            _config(
                "deepseek-r1-distill-70b",
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
            _config("qwen2-vl-7b"),
            Workload(0.1),
            ((life - 0.5 * HOUR, Engine.stall),),
        ),
        Member(
            "prefill-held",
            "holds blocks until a decode engine has read them",
            _config("deepseek-v2-lite", hold_seconds=480, templates=(*PLAIN, NIXL)),
            Workload(0.2, busy_seconds=300, quiet_seconds=3300, output_tokens=2, spread=0.3),
        ),
        Member(
            "night-asleep",
            "put to sleep by its operator",
            _config("phi-4"),
            Workload(0.1),
            ((life - 2 * HOUR, Engine.sleep),),
        ),
    )
    drifting = Member(
        "rag-drifting",
        "healthy, but prompts stop sharing their prefixes",
        _config("qwen2.5-14b-instruct"),
        Workload(
            0.12,
            prompt_tokens=200,
            prefix_tokens=1024,
            shared_share=0.9,
            shared_share_later=0.2,
            drift_seconds=STORY_SECONDS - 3 * HOUR,
        ),
    )
    return (drifting, *(replace(member, deployed_seconds=LATE_SECONDS) for member in late))


def _config(model_name: str, **options: object) -> EngineConfig:
    usual = {"num_gpu_blocks": 2048, "block_size": 64, "step_seconds": STEP_SECONDS}
    return EngineConfig(model_name, **{**usual, **options})  # type: ignore[arg-type]
