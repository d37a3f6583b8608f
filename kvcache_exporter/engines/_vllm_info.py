"""What the labels of ``vllm:cache_config_info`` say: ``str()`` of the front end's cache settings.

The set of labels changes with nearly every release, so each is taken as it comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_exporter.pool_size.capacity import Claims, Dialect
from kvcache_exporter.samples import number

_FLAG = {"true": True, "false": False}


def facts(info: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a reading that the labels alone decide."""
    return {
        "block_size_tokens": integer(info.get("block_size")),
        "pool_bytes": integer(info.get("kv_cache_memory_bytes")),
        "cache_dtype": info.get("cache_dtype"),
        "prefix_caching": _FLAG.get(info.get("enable_prefix_caching", "").lower()),
        "gpu_memory_utilization": _share(info.get("gpu_memory_utilization")),
    }


def claims(
    info: Mapping[str, str], configured: int | None, counted_over: tuple[int, ...], dialect: Dialect
) -> Claims:
    """Return what the labels, the operator and the shape of the page say about the pool."""
    tokens, size = integer(info.get("kv_cache_size_tokens")), integer(info.get("block_size"))
    return Claims(
        label_blocks=integer(info.get("num_gpu_blocks")),
        token_blocks=tokens // size if tokens and size else None,
        configured_blocks=configured,
        counted_over=counted_over,
        dialect=dialect,
    )


def offloads(info: Mapping[str, str]) -> bool:
    """Whether blocks are offloaded, so that they may outlive their request."""
    return info.get("kv_offloading_size", "None") not in ("None", "")


def integer(text: str | None) -> int | None:
    """Read a positive integer from a label; "None" and other words say nothing."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 18:
        return None
    return int(text) or None


def _share(text: str | None) -> float | None:
    try:
        share = number((text or "").encode())
    except ValueError:
        return None
    return share if 0.0 < share <= 1.0 else None
