"""What an audit has found out so far, as one value that any thread may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcache_exporter.vllm_plugin.walk import Counts


@dataclass(frozen=True, slots=True)
class Known:
    """The newest count, and what it says together with those before."""

    at: float
    """On the auditor's clock, when the sample was taken."""
    counts: Counts
    settled_orphaned: int | None
    settled_ghosts: int | None
    pinned: int
    """Nobody's for now, where a connector may hold them for a transfer."""
    orphaned_after: Mapping[str, int]
    samples: int

    def told(self, now: float, baseline: int) -> dict[str, Any]:
        """Return it as it is served."""
        counts = self.counts
        return {
            "time": counts.time,
            "age_seconds": round(now - self.at, 3),
            "pool_blocks": counts.pool_blocks,
            "free_blocks": counts.free_blocks,
            "cached_blocks": counts.cached_blocks,
            "owners": dict(counts.owners)
            | {"set_aside": baseline, "connector_pinned": self.pinned},
            "requests": dict(counts.requests),
            "oldest_seconds": dict(counts.oldest_seconds),
            "orphaned_blocks": counts.orphaned - self.pinned,
            "double_booked_blocks": counts.double_booked,
            "settled_orphaned_blocks": self.settled_orphaned,
            "settled_ghost_blocks": self.settled_ghosts,
            "orphaned_after": dict(self.orphaned_after),
        }
