"""What a baseline consists of; None = could not be measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure measured several times."""

    median: float
    low: float
    high: float
    """Smallest and largest of the repetitions."""
    count: int


@dataclass(frozen=True, slots=True)
class Picture:
    """One server at one time."""

    taken: str
    """ISO 8601, UTC."""
    url: str
    vllm_version: str | None = None
    model_name: str | None = None
    engines: int | None = None
    pool_blocks: int | None = None
    block_size_tokens: int | None = None
    cache_dtype: str | None = None
    prefix_caching: bool | None = None
    idle: bool | None = None
    """Whether nobody ran or waited when the blocks were counted."""
    used_blocks: int | None = None
    hit_ratio: float | None = None
    """Since the server's start, by tokens."""
    gpu_used_bytes: int | None = None
    host_memory_bytes: float | None = None
    first_token_seconds: Spread | None = None
    """Of one fixed request, repeated."""
    total_seconds: Spread | None = None
