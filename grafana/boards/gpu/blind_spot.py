"""One engine as the driver and as vLLM see it."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, GREY, ORANGE, PURPLE, STEEL, VERMILION, Json
from grafana.panels import limit, lines, painted
from grafana.queries import Query, engine, engine_gpus


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    pool = engine("kvcache_pool_blocks")
    own = engine("kvcache_engine_gpu_memory_bytes", by="uuid")
    return frame.section(
        "One engine: driver and pool on one time axis",
        lines(
            "Driver against pool",
            "Both as shares of what there is. The driver's line is flat because vLLM takes its "
            "pool once at start; only the blocks show a leak.",
            Query(
                f"{engine_gpus('kvcache_gpu_memory_used_bytes')} / "
                f"{engine_gpus('kvcache_gpu_memory_total_bytes')}",
                "Driver: memory used",
            ),
            Query(f"{engine('kvcache_used_blocks')} / {pool}", "Pool: blocks used"),
            Query(f"{engine('kvcache_idle_floor_blocks')} / {pool}", "Pool: used at idle"),
            Query(f"{engine('kvcache_orphaned_blocks_low')} / {pool}", "Pool: owned by nobody"),
            unit="percentunit",
            max=1,
            size=(24, 11),
            overrides=(
                painted("Driver: memory used", GREY, dashed=True),
                painted("Pool: blocks used", BLUE, custom__fillOpacity=10),
                painted("Pool: used at idle", ORANGE),
                painted("Pool: owned by nobody", VERMILION, custom__fillOpacity=25),
            ),
        ),
        lines(
            "GPU memory of this engine",
            "As the driver sees it, summed over the engine's GPUs; the dashed line is all there "
            "is.",
            Query(engine_gpus("kvcache_gpu_memory_used_bytes"), "Used"),
            Query(engine_gpus("kvcache_gpu_memory_reserved_bytes"), "Reserved"),
            Query(engine_gpus("kvcache_gpu_memory_free_bytes"), "Free"),
            Query(engine_gpus("kvcache_gpu_memory_total_bytes"), "Total"),
            unit="bytes",
            fill=30,
            stacked=True,
            no_value="GPU of this engine not known",
            overrides=(
                limit("Total"),
                painted("Used", BLUE),
                painted("Reserved", PURPLE),
                painted("Free", STEEL),
            ),
        ),
        lines(
            "Memory of this engine's processes, and its pool",
            "What its own processes hold on its GPUs, and the bytes of the blocks in use inside. "
            "Not every source tells processes, and not every release prints the pool's bytes.",
            Query(f"sum({own})", "Held by its processes"),
            Query(engine("kvcache_pool_bytes"), "Pool"),
            Query(engine("kvcache_used_bytes"), "Pool: used"),
            unit="bytes",
            no_value="neither processes nor the pool's bytes are known",
            overrides=(
                painted("Held by its processes", PURPLE),
                limit("Pool"),
                painted("Pool: used", BLUE, custom__fillOpacity=10),
            ),
        ),
    )
