"""Driver and pool in numbers."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BAD_ABOVE_0, BLUE, NONE, ORANGE, VERMILION, Json, steps, usage
from grafana.panels import stat
from grafana.queries import engine, engine_gpus, gpu, gpu_source, now


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    lost = f"sum({gpu_source('kvcache_gpus_expected')} - {gpu_source('kvcache_gpus_seen')})"
    up = gpu_source("kvcache_gpu_source_up")
    return frame.section(
        "",
        stat(
            "Driver: memory used",
            "GPU memory in use on this engine's GPUs, as the driver reports it.",
            now(
                f"{engine_gpus('kvcache_gpu_memory_used_bytes')} / "
                f"{engine_gpus('kvcache_gpu_memory_total_bytes')}"
            ),
            unit="percentunit",
            decimals=1,
            width=4,
            no_value="GPU not known",
        ),
        stat(
            "Pool: blocks used",
            "KV blocks of this engine in use: the part the driver cannot see.",
            now(f"{engine('kvcache_used_blocks')} / {engine('kvcache_pool_blocks')}"),
            unit="percentunit",
            decimals=1,
            width=4,
            thresholds=usage(thresholds),
        ),
        stat(
            "Pool: owned by nobody",
            "Blocks of this engine proven to be owned by nobody, as a share of the pool. Red from "
            "where it pages.",
            now(f"{engine('kvcache_orphaned_blocks_low')} / {engine('kvcache_pool_blocks')}"),
            unit="percentunit",
            decimals=1,
            width=4,
            mappings=NONE,
            thresholds=steps(
                BLUE, (0.0001, ORANGE), (thresholds["leak_page_pool_ratio"], VERMILION)
            ),
        ),
        stat(
            "GPUs lost",
            "GPUs that a source has reported once and does not report now.",
            now(lost),
            unit="none",
            width=4,
            mappings=NONE,
            thresholds=BAD_ABOVE_0,
        ),
        stat(
            "Sources down",
            "NVML or dcgm-exporter sources that did not answer in the last cycle.",
            now(f"count({up}) - sum({up})"),
            unit="none",
            width=4,
            mappings=NONE,
            thresholds=BAD_ABOVE_0,
        ),
        stat(
            "Held by no engine",
            "Largest amount of memory on one GPU that no live engine holds. Orange from where it "
            "is a ticket.",
            now(f"max({gpu('kvcache_gpu_unowned_bytes')})"),
            unit="bytes",
            decimals=1,
            width=4,
            thresholds=steps(BLUE, (thresholds["unowned_gpu_bytes"], ORANGE)),
        ),
    )
