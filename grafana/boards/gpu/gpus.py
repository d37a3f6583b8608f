"""Every GPU and its engines."""

from __future__ import annotations

from grafana import frame
from grafana.frame import engine_link
from grafana.looks import BLUE, ORANGE, Json, steps
from grafana.panels import by_name, by_pattern, table
from grafana.queries import ENGINE_KEY, GPUS, gpu, rows


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section("Which GPU belongs to whom", _table(thresholds))


def _table(thresholds: Json) -> Json:
    return table(
        "GPUs",
        "The GPUs of the choice above with the engines that run on them, at most 200. A GPU "
        "without a target belongs to no engine we know; a MIG slice has a row of its own beside "
        "its parent.",
        rows(f"max by (uuid, index, model, source, driver_version) (kvcache_gpu_info{{{GPUS}}})"),
        rows(f"max by (uuid, {ENGINE_KEY}) (kvcache_engine_gpu_info{{{GPUS}}})"),
        rows(gpu("kvcache_gpu_memory_total_bytes")),
        rows(gpu("kvcache_gpu_memory_used_bytes")),
        rows(gpu("kvcache_gpu_memory_reserved_bytes")),
        rows(gpu("kvcache_gpu_memory_free_bytes")),
        rows(gpu("kvcache_gpu_outside_pool_bytes")),
        rows(gpu("kvcache_gpu_unowned_bytes")),
        columns={
            "uuid": "GPU",
            "index": "Index",
            "model": "Model",
            "source": "Source",
            "driver_version": "Driver",
            "cluster": "Cluster",
            "target": "Target",
            "engine": "Engine",
            "Value #C": "Total",
            "Value #D": "Used",
            "Value #E": "Reserved",
            "Value #F": "Free",
            "Value #G": "Outside pool",
            "Value #H": "Held by no engine",
        },
        hidden=("Value #A", "Value #B"),
        sort="Held by no engine",
        size=(24, 11),
        overrides=(
            by_pattern("^(Total|Used|Reserved|Free)$", unit="bytes", custom__width=90),
            by_pattern("^(Outside pool|Held by no engine)$", unit="bytes", custom__width=140),
            by_name("GPU", custom__width=368),
            by_name("Index", custom__width=60),
            by_name("Source", custom__width=95),
            by_name("Driver", custom__width=110),
            by_name("Engine", custom__width=65),
            by_name("Target", links=engine_link("data.fields"), custom__width=190),
            by_name(
                "Held by no engine",
                custom__cellOptions={"type": "color-text"},
                thresholds=steps(BLUE, (thresholds["unowned_gpu_bytes"], ORANGE)),
            ),
        ),
    )
