"""Which column of a table feeds which series: names of our own, or any vLLM name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kvcache_exporter.engines import vllm

TIMES = ("t_seconds", "time", "timestamp")
WORDS = ("target", "engine", "model_name")
INFO = frozenset(
    {"num_gpu_blocks", "block_size", "kv_cache_size_tokens", "cache_dtype", "enable_prefix_caching"}
)
"""Columns that are labels of ``cache_config_info``."""
RATES = {"gen_tok_s": "generation_tokens_total", "prompt_tok_s": "prompt_tokens_total"}
"""Rates a second, summed up again to the counter they were taken from."""
FLAGS = {"connector": "kv_offload_total_bytes_total", "sleeping": "engine_sleep_state"}
"""Columns of 0 and 1, and the series that tells the same."""
ALIASES = {
    "running": "num_requests_running",
    "waiting": "num_requests_waiting",
    "deferred": "num_requests_waiting_by_reason",
    "usage": "kv_cache_usage_perc",
    "hit_rate": "gpu_prefix_cache_hit_rate",
    "engine_sleep_state": "sleeping",
    "paused": "sleeping",
}
_LABELS: Mapping[str, Mapping[str, str]] = {
    "num_requests_waiting_by_reason": {"reason": "deferred"},
    "request_success_total": {"finished_reason": "stop"},
    "request_success": {"finished_reason": "stop"},
    "http_requests_total": {"handler": "/v1/completions"},
    "engine_sleep_state": {"sleep_state": "awake"},
}
"""The label value a column without braces stands for."""
_HEADER = re.compile(r'\s*([A-Za-z_:][\w:]*)\s*(?:\{\s*(\w+)\s*=\s*"?([^"}]*)"?\s*\})?\s*')


@dataclass(frozen=True, slots=True)
class Column:
    """One column as understood; ``kind`` is time, word, info, rate, flag, sample or ignored."""

    index: int
    header: str
    kind: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


def column(index: int, header: str) -> Column:
    """Understand one header field: ``running``, ``prompt_tokens_total``, ``x{label="value"}``."""
    match = _HEADER.fullmatch(header)
    if match is None:
        return Column(index, header, "ignored", header)
    name = match[1].removeprefix("vllm:")
    name = ALIASES.get(name, name)
    label = {match[2]: match[3]} if match[2] else _LABELS.get(name, {})
    for kind, known in (("time", TIMES), ("word", WORDS), ("info", INFO), ("rate", RATES)):
        if name in known:
            return Column(index, header, kind, name)
    if name in FLAGS and not match[2]:
        series = FLAGS[name]
        return Column(index, header, "flag", name, MappingProxyType(_LABELS.get(series, {})))
    if name in vllm.NAMES or name in vllm.PLAIN:
        full = name if name in vllm.PLAIN else f"vllm:{name}"
        return Column(index, header, "sample", full, MappingProxyType(dict(label)))
    return Column(index, header, "ignored", name)
