"""The size of a KV pool in bytes, from the model's ``config.json`` where vLLM does not print it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from kvcache_exporter.model import EngineReading, KvModel
from kvcache_exporter.pool_size.kv_bytes import Parallel, UnknownLayoutError, block_bytes

ANY_DTYPE = "bfloat16"
"""To check a file before any page has told the type of the cache."""


def mistakes(model: KvModel) -> Iterable[tuple[str, str]]:
    """Read the file anew and say, under the keys of *model*, what keeps it from being used."""
    _read.cache_clear()
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        if getattr(model, name) < 1:
            yield name, f"must be 1 or more, as vLLM was started, not {getattr(model, name)}"
            return
    try:
        block_bytes(_read(model.config), 16, ANY_DTYPE, _parallel(model))
    except OSError as error:
        yield "config", f"cannot be read: {error.strerror}"
    except UnknownLayoutError as error:
        yield "config", f"does not tell the size of this model's KV cache: {error}"
    except (ValueError, TypeError):
        yield "config", "is not a model's config.json"


def with_pool_bytes(reading: EngineReading, model: KvModel | None) -> EngineReading:
    """Add the bytes of the pool on each of an engine's GPUs, where all that it takes is known."""
    if model is None or reading.pool_bytes is not None:
        return reading
    if reading.pool_blocks is None or reading.block_size_tokens is None:
        return reading
    one = _block_bytes(model, reading.block_size_tokens, reading.cache_dtype or "auto")
    return reading if one is None else replace(reading, pool_bytes=reading.pool_blocks * one)


def _block_bytes(model: KvModel, block_size: int, cache_dtype: str) -> int | None:
    try:
        return block_bytes(_read(model.config), block_size, cache_dtype, _parallel(model))
    except (OSError, ValueError, TypeError):  # told when the configuration was read
        return None


def _parallel(model: KvModel) -> Parallel:
    return Parallel(model.tensor_parallel_size, model.pipeline_parallel_size)


@cache
def _read(path: str) -> Mapping[str, Any]:
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise TypeError(f"{path} is no JSON object")
    return data
