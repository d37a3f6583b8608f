"""Which vLLM series feed which field of a reading: the one list of vLLM's names.

Read in the Python files of 33 releases. Old and new spellings of one metric are alternatives in
order of preference, never summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIXES = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
INFO = "cache_config_info"
USAGE = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
SWAPPED = "num_requests_swapped"
CREATED = "prompt_tokens_created"
START = "process_start_time_seconds"
MEMORY = "process_resident_memory_bytes"
HTTP = "http_requests_total"


@dataclass(frozen=True, slots=True)
class Source:
    """Where one field comes from: the first of *names* that is there, or the sum of them all."""

    names: tuple[str, ...]
    label: str | None = None
    """The label that tells the members of the family apart; its members are summed."""
    members: tuple[str, ...] = ()
    """Members that count; empty = all of them."""
    total: bool = False


def _gauge(*names: str) -> Source:
    return Source(names)


def _counter(*names: str) -> Source:
    """Name a counter as it is printed today and as clients without ``_total`` print it."""
    return Source(tuple(spelling for name in names for spelling in (f"{name}_total", name)))


def _total(*names: str) -> Source:
    return Source(names, total=True)


FIELDS: Mapping[str, Source] = {
    "running": _gauge("num_requests_running"),
    "waiting": _total("num_requests_waiting", SWAPPED),
    "waiting_deferred": Source(("num_requests_waiting_by_reason",), "reason", ("deferred",)),
    "usage_ratio": _gauge(*USAGE),
    "hit_ratio": _gauge("gpu_prefix_cache_hit_rate"),
    "awake": Source(("engine_sleep_state",), "sleep_state", ("awake",)),
    "prompt_tokens": _counter("prompt_tokens"),
    "generation_tokens": _counter("generation_tokens"),
    "finished_prompt_tokens": _gauge("request_prompt_tokens_sum"),
    "finished_generation_tokens": _gauge("request_generation_tokens_sum"),
    "finished_requests": _gauge("request_prompt_tokens_count"),
    "first_tokens": _gauge("time_to_first_token_seconds_count"),
    "completions": Source(
        ("request_success_total", "request_success"),
        "finished_reason",
        ("stop", "length", "error", "repetition"),
    ),
    "steps": _gauge("iteration_tokens_total_count"),
    "prefix_hit_tokens": _counter("prefix_cache_hits", "gpu_prefix_cache_hits"),
    "prefix_query_tokens": _counter("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "external_hit_tokens": _counter("external_prefix_cache_hits"),
    "external_query_tokens": _counter("external_prefix_cache_queries"),
    "preemptions": _counter("num_preemptions"),
    "transfer_errors": _total(
        "nixl_num_failed_transfers_total",
        "nixl_num_failed_notifications_total",
        "mooncake_store_operation_failed_keys_total",
        "hf3fs_num_failed_load_total",
        "hf3fs_num_failed_save_total",
        "kv_offload_allocation_failure_total",
        "kv_offload_tiering_cascade_job_failures_total",
        "kv_offload_tiering_promotion_job_failures_total",
    ),
    "stored_bytes": _total(
        "kv_offload_store_bytes_total",
        "kv_offload_tiering_write_bytes_total",
        "mooncake_store_operation_bytes_total",
    ),
}
_CONNECTOR_ONLY = (
    "hisparse_host_cache_usage_perc",
    "kv_offload_cpu_cache_usage_perc",
    "kv_offload_total_bytes_total",
    "nixl_num_kv_expired_reqs_total",
    "num_requests_kv_fetch_by_stage",
    "simple_kv_offload_used_blocks",
)
CONNECTOR = frozenset(
    (*FIELDS["transfer_errors"].names, *FIELDS["stored_bytes"].names, *_CONNECTOR_ONLY)
)
"""Families that exist only with a KV connector; one of them on a page means blocks may be held."""

NAMES = frozenset(
    {name for source in FIELDS.values() for name in source.names} | CONNECTOR | {INFO, CREATED}
)
PLAIN = frozenset({START, MEMORY, HTTP})
