"""How a simulated engine is started, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .leaks import Leak

PLAIN = ("vllm-0.32.0.prom.in",)
NIXL = "nixl-0.32.0.prom.in"
"""What a NIXL connector adds to the page; names from vLLM's source, the order not recorded."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the simulated GPU is."""

    prefill_tokens_per_second: float = 8000.0
    decode_tokens_per_second: float = 40.0
    """Of a request that runs alone."""
    half_speed_requests: float = 120.0
    """Running requests at which each decodes half as fast as alone."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine is started and what is wrong with it."""

    model_name: str = "tiny"
    num_gpu_blocks: int = 2048
    """With the null block, as vLLM prints it."""
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_queued_reqs: int = 500
    prefix_caching: bool = True
    hold_seconds: float = 0.0
    """How long blocks stay held after a request ended, to be read by a decode engine."""
    speed: Speed = field(default_factory=Speed)
    step_seconds: float = 1.0
    """One simulated step stands for all engine steps in this time."""
    leaks: tuple[Leak, ...] = ()
    templates: tuple[str, ...] = PLAIN
