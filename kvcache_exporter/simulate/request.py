"""One request on its way through the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from .prefix import Segment, block_hashes

OUTPUTS = 1 << 40
"""Content numbers from here on are outputs."""


@dataclass(slots=True, eq=False)
class Request:
    """What a client asked for, and how far the engine has come with it; times in seconds."""

    request_id: int
    arrival_time: float
    segments: tuple[Segment, ...]
    output_tokens: int
    """Tokens after which the model ends by itself."""
    max_tokens: int
    hang_up_tokens: int | None = None
    """Generated tokens after which the client hangs up; None = it waits for the end."""
    blocks: list[int] = field(default_factory=list)
    computed_tokens: int = 0
    prefill_tokens: int = 0
    """Tokens to compute before decoding: the prompt, and after a preemption the output so far."""
    generated_tokens: int = 0
    cached_tokens: int = 0
    stored_blocks: int = 0
    preemptions: int = 0
    admission_time: float | None = None
    first_token_time: float | None = None
    hashes: list[int] = field(default_factory=list)
    prompt_tokens: int = field(init=False)
    _more_hashes: Iterator[int] | None = None

    def __post_init__(self) -> None:
        self.prompt_tokens = sum(tokens for _, tokens in self.segments)

    @property
    def last_token(self) -> int:
        """Generated tokens at which the engine is rid of the request, one way or the other."""
        hang_up = self.output_tokens if self.hang_up_tokens is None else self.hang_up_tokens
        return min(self.output_tokens, hang_up)

    @property
    def is_aborted(self) -> bool:
        """Whether the client hangs up before the model has finished."""
        return self.last_token < self.output_tokens

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to generate."""
        return self.generated_tokens >= self.last_token

    def block_hashes(self, count: int, block_size: int) -> list[int]:
        """Know the first `count` hashes of the request's chain of blocks."""
        if self._more_hashes is None:
            self._more_hashes = block_hashes(self.segments, OUTPUTS + self.request_id, block_size)
        self.hashes += islice(self._more_hashes, max(0, count - len(self.hashes)))
        return self.hashes
