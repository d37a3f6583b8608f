"""What is outside the pool."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, PURPLE, STEEL, Json
from grafana.panels import by_name, by_pattern, limit, lines, painted, table
from grafana.queries import ENGINE_KEY, Query, engine, engine_gpus, rows, target

IDENTITY = "model_name, vllm_version, block_size, cache_dtype, prefix_caching, naming"


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section(
        "Beside the pool",
        lines(
            "GPU memory of this engine",
            "As the driver sees it, summed over the GPUs of this engine. It stays flat while "
            "blocks leak: that is the blind spot.",
            Query(engine_gpus("kvcache_gpu_memory_total_bytes"), "Total"),
            Query(engine_gpus("kvcache_gpu_memory_used_bytes"), "Used"),
            Query(engine_gpus("kvcache_gpu_memory_reserved_bytes"), "Reserved"),
            Query(engine_gpus("kvcache_gpu_memory_free_bytes"), "Free"),
            unit="bytes",
            no_value="GPU of this engine not known",
            size=(12, 9),
            overrides=(
                limit("Total"),
                painted("Used", BLUE),
                painted("Reserved", PURPLE),
                painted("Free", STEEL),
            ),
        ),
        lines(
            "Scrape of the target",
            "How long the target takes to answer. A gap is a time without an answer.",
            Query(target("kvcache_target_scrape_duration_seconds"), "Duration"),
            unit="s",
            size=(12, 9),
            overrides=(painted("Duration", BLUE),),
        ),
        table(
            "What this engine is",
            "From vLLM's own page and its /version. For the hold time blocks may rightly be held.",
            rows(engine("kvcache_engine_info", by=f"{ENGINE_KEY}, {IDENTITY}")),
            rows(engine("kvcache_pool_blocks", by=ENGINE_KEY)),
            rows(engine("kvcache_pool_tokens", by=ENGINE_KEY)),
            rows(engine("kvcache_pool_bytes", by=ENGINE_KEY)),
            rows(engine("kvcache_used_bytes", by=ENGINE_KEY)),
            rows(engine("kvcache_free_blocks", by=ENGINE_KEY)),
            rows(engine("kvcache_hold_seconds", by=ENGINE_KEY)),
            columns={
                "target": "Target",
                "engine": "Engine",
                "model_name": "Model",
                "vllm_version": "vLLM",
                "block_size": "Tokens / block",
                "cache_dtype": "Cache type",
                "prefix_caching": "Prefix caching",
                "naming": "Naming",
                "Value #B": "Pool blocks",
                "Value #C": "Pool tokens",
                "Value #D": "Pool size",
                "Value #F": "Free blocks",
                "Value #E": "Used size",
                "Value #G": "Hold time",
            },
            hidden=("Value #A",),
            unit="locale",
            size=(24, 4),
            overrides=(
                *_narrow(),
                by_pattern("size$", unit="bytes"),
                by_name("Hold time", unit="s"),
            ),
        ),
    )


def _narrow() -> list[Json]:
    """Keep all columns on the screen; the model takes what is left."""
    return [
        by_name("Target", custom__width=190),
        by_pattern("^(Engine|vLLM|Naming)$", custom__width=75),
        by_pattern("^(Tokens / block|Prefix caching)$", custom__width=115),
        by_pattern("^(Cache|Pool|Free|Used|Hold) ", custom__width=100),
    ]
