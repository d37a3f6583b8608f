"""An external KV store that is written to and never read: cost without use."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

EVERY_SECONDS = 300.0
MIN_QUERY_TOKENS = 1_000_000


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Tokens found in the external store since the server started."""
    reading = history.reading
    if reading is None or reading.external_query_tokens is None:
        return None
    hits, queries = reading.external_hit_tokens or 0.0, reading.external_query_tokens
    stored = reading.stored_bytes or 0.0
    return Indication(
        "write_only_cache",
        hits,
        hits == 0 and queries >= MIN_QUERY_TOKENS and stored > 0,
        f"{hits:.0f} of {queries:.0f} tokens looked up in the external store were found, and "
        f"{stored / 2**30:.1f} GiB were written to it since the server started",
        finding="write_only_cache",
    )
