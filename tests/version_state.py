"""The truth about one simulated engine, and what a given vLLM release would say of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DATA = json.loads((Path(__file__).parent / "data" / "vllm-metrics.json").read_text())


@dataclass(frozen=True)
class EngineState:
    """What is true of one engine; tokens and requests are lifetime totals."""

    pool_blocks: int = 999
    """Blocks that requests can use; V1 pools have one more, the null block."""
    used_blocks: int = 0
    running: int = 0
    waiting: int = 0
    deferred: int = 0
    """Of those waiting, how many wait for something other than capacity."""
    block_size: int = 16
    model_name: str = "tiny"
    prompt_tokens: int = 6400
    generation_tokens: int = 3200
    finished_requests: int = 40
    query_tokens: int = 6400
    hit_tokens: int = 1600
    preemptions: int = 3
    steps: int = 5000
    sleeping: bool = False


@dataclass(frozen=True)
class Server:
    """One page's release and switches."""

    version: str
    core: str
    multiprocess: bool
    prefix_caching: bool
    num_gpu_blocks: str | None
    pid_used_blocks: tuple[int, ...]

    @property
    def number(self) -> tuple[int, ...]:
        """The release for comparisons: (0, 10, 1, 1)."""
        return number(self.version)


def number(version: str) -> tuple[int, ...]:
    """The parts of a release number; a post-release counts as its release."""
    return tuple(int(part) for part in version.split(".post")[0].split("."))


def observations(name: str, state: EngineState) -> int:
    return state.steps if name == "iteration_tokens_total" else state.finished_requests


def labelled(server: Server, name: str, label: str, state: EngineState) -> dict[str, float]:
    """The values of a family's children by its one label beyond model and engine."""
    if label == "finished_reason":
        later = ["error"] * (server.number >= (0, 13)) + ["repetition"] * (server.number >= (0, 17))
        return {"stop": state.finished_requests, **dict.fromkeys(["length", "abort", *later], 0)}
    if label == "sleep_state":
        asleep = int(state.sleeping)
        return {"awake": 1 - asleep, "weights_offloaded": asleep, "discard_all": 0}
    if name == "num_requests_waiting_by_reason":
        return {"capacity": state.waiting - state.deferred, "deferred": state.deferred}
    if name == "prompt_tokens_by_source_total":
        computed = state.prompt_tokens - state.hit_tokens
        return {"local_compute": computed, "local_cache_hit": state.hit_tokens}
    if name == "prompt_tokens_cached_by_source_total":
        return {"device": state.hit_tokens, "host": 0}
    return {"other": 0}


def value(server: Server, name: str, state: EngineState) -> float:
    """The one value of a child, or a histogram's sum; 0 for what no test asks for."""
    unit = state.block_size if server.number < (0, 9) else 1  # 0.8 counts lookups in blocks
    hits, queries = state.hit_tokens // unit, state.query_tokens // unit
    if not server.prefix_caching:
        hits = queries = 0
    values: dict[str, float] = {
        "num_requests_running": state.running,
        "num_requests_waiting": state.waiting,
        "gpu_cache_usage_perc": usage(server, state),
        "kv_cache_usage_perc": usage(server, state),
        "gpu_prefix_cache_hit_rate": hits / queries if queries else -1,
        "prefix_cache_queries_total": queries,
        "prefix_cache_hits_total": hits,
        "gpu_prefix_cache_queries_total": queries,
        "gpu_prefix_cache_hits_total": hits,
        "prompt_tokens_total": state.prompt_tokens,
        "prompt_tokens_cached_total": hits,
        "generation_tokens_total": state.generation_tokens,
        "num_preemptions_total": state.preemptions,
        "request_prompt_tokens": state.prompt_tokens,
        "request_generation_tokens": state.generation_tokens,
        "iteration_tokens_total": state.prompt_tokens + state.generation_tokens,
    }
    return values.get(name, 0)


def usage(server: Server, state: EngineState) -> float:
    free = state.pool_blocks - state.used_blocks
    if server.core == "V0" or server.number >= (0, 10, 2):
        return 1.0 - free / state.pool_blocks
    return 1.0 - free / (state.pool_blocks + 1)  # the null block is in the pool and never free


def cache_config_labels(
    server: Server, rank: int, state: EngineState, engines: Sequence[EngineState]
) -> dict[str, str]:
    [names] = [
        entry["labels"]
        for entry in DATA["cache_config_labels"]
        if entry["core"] == server.core and server.version in entry["versions"]
    ]
    known = {
        "block_size": str(state.block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(server.prefix_caching),
        "engine": str(rank),
        "num_gpu_blocks": server.num_gpu_blocks or _pool_label(server, engines),
        "kv_cache_size_tokens": str((state.pool_blocks + 1) * state.block_size),
    }
    return {name: known.get(name, "None") for name in names}


def _pool_label(server: Server, engines: Sequence[EngineState]) -> str:
    """`num_gpu_blocks` as printed: summed over ranks in V1, or never learned by the front-end."""
    if server.core == "V0":
        return str(engines[-1].pool_blocks)
    attached = server.multiprocess and (0, 9, 1) <= server.number < (0, 20)
    if server.number < (0, 9) or attached:
        return "None"
    return str(sum(engine.pool_blocks + 1 for engine in engines))
