"""What does the driver show, and what does it not show of the pool behind it?"""

from __future__ import annotations

from grafana.frame import dashboard, engine_link, section, variable
from grafana.looks import (
    BAD_ABOVE_0,
    BLUE,
    DIM,
    GREY,
    NONE,
    ORANGE,
    PURPLE,
    UP_DOWN,
    VERMILION,
    Json,
    steps,
    usage,
)
from grafana.panels import by_name, lanes, limit, lines, painted, stat, table
from grafana.queries import JOB, Query, engine, engine_gpus, now, rows

GPU = 'job=~"$job", uuid=~"$gpu"'


def board(thresholds: Json) -> Json:
    """GPU memory beside KV blocks, on one time axis."""
    known = 'kvcache_verdict{job=~"$job", namespace=~"$namespace"}'
    return dashboard(
        "kvcache-gpu",
        "KV cache / GPU blind spot",
        __doc__ or "",
        [
            variable("job", "Job", "kvcache_exporter_targets"),
            variable("namespace", "Namespace", 'kvcache_verdict{job=~"$job"}', all_value=".*"),
            variable("target", "Target", known, many=False),
            variable(
                "engine", "Engine", 'kvcache_verdict{job=~"$job", target="$target"}', many=False
            ),
            variable("gpu", "GPU", 'kvcache_gpu_info{job=~"$job"}'),
        ],
        [
            section("", *_tiles(thresholds)),
            section("One engine: driver and pool on one time axis", *_blind_spot()),
            section("All GPUs: what moves outside the pools", *_outside(thresholds)),
            section("Which GPU belongs to whom", _gpus(thresholds)),
            section("Do the sources answer", *_sources()),
        ],
    )


def _gpu(metric: str) -> str:
    return f"max by (uuid) ({metric}{{{GPU}}})"


def _source(metric: str) -> str:
    return f"{metric}{{{JOB}}}"


def _worst(expr: str) -> str:
    ranked = f"topk(10, avg_over_time(({expr})[$__range:$__interval] @ end()))"
    return f"({expr}) and on (uuid) {ranked}"


def _tiles(thresholds: Json) -> list[Json]:
    lost = f"sum({_source('kvcache_gpus_expected')} - {_source('kvcache_gpus_seen')})"
    up = _source("kvcache_gpu_source_up")
    return [
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
            now(f"max({_gpu('kvcache_gpu_unowned_bytes')})"),
            unit="bytes",
            decimals=1,
            width=4,
            thresholds=steps(BLUE, (thresholds["unowned_gpu_bytes"], ORANGE)),
        ),
    ]


def _blind_spot() -> list[Json]:
    pool = engine("kvcache_pool_blocks")
    return [
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
                painted("Free", DIM),
            ),
        ),
        lines(
            "KV pool of this engine",
            "Bytes of the blocks in use inside the pool that the driver counts as used all the "
            "time. Some releases do not print the pool's bytes.",
            Query(engine("kvcache_pool_bytes"), "Pool"),
            Query(engine("kvcache_used_bytes"), "Used"),
            unit="bytes",
            no_value="vLLM does not print the pool's bytes",
            overrides=(limit("Pool"), painted("Used", BLUE, custom__fillOpacity=10)),
        ),
    ]


def _outside(thresholds: Json) -> list[Json]:
    return [
        lines(
            "Growth outside the pool since warm-up",
            "Memory that is neither weights nor pool, the 10 highest GPUs. The pool does not grow, "
            "so a line that rises for hours is a leak outside of it.",
            Query(_worst(_gpu("kvcache_gpu_outside_pool_bytes")), "{{uuid}}"),
            unit="bytes",
            no_value="nothing to compare yet",
        ),
        lines(
            "Memory held by no live engine",
            "The 10 highest GPUs; the line is where it becomes a ticket.",
            Query(_worst(_gpu("kvcache_gpu_unowned_bytes")), "{{uuid}}"),
            unit="bytes",
            no_value="processes of the GPUs not known",
            limits=steps(BLUE, (thresholds["unowned_gpu_bytes"], ORANGE)),
        ),
    ]


def _gpus(thresholds: Json) -> Json:
    return table(
        "GPUs",
        "The GPUs of the choice above with the engines that run on them, at most 200. A GPU "
        "without a target belongs to no engine we know; a MIG slice has a row of its own beside "
        "its parent.",
        rows(f"max by (uuid, index, model, source, driver_version) (kvcache_gpu_info{{{GPU}}})"),
        rows(f"max by (uuid, target, engine) (kvcache_engine_gpu_info{{{GPU}}})"),
        rows(_gpu("kvcache_gpu_memory_total_bytes")),
        rows(_gpu("kvcache_gpu_memory_used_bytes")),
        rows(_gpu("kvcache_gpu_memory_reserved_bytes")),
        rows(_gpu("kvcache_gpu_memory_free_bytes")),
        rows(_gpu("kvcache_gpu_outside_pool_bytes")),
        rows(_gpu("kvcache_gpu_unowned_bytes")),
        columns={
            "uuid": "GPU",
            "index": "Index",
            "model": "Model",
            "source": "Source",
            "driver_version": "Driver",
            "target": "Target",
            "engine": "Engine",
            "Value #C": "Total",
            "Value #D": "Used",
            "Value #E": "Reserved",
            "Value #F": "Free",
            "Value #G": "Growth outside pool",
            "Value #H": "Held by no engine",
        },
        hidden=("Value #A", "Value #B"),
        sort="Held by no engine",
        unit="bytes",
        size=(24, 9),
        overrides=(
            by_name("GPU", custom__width=330),
            by_name("Index", custom__width=70),
            by_name("Engine", custom__width=75),
            by_name("Target", links=engine_link("data.fields")),
            by_name(
                "Held by no engine",
                custom__cellOptions={"type": "color-text"},
                thresholds=steps(BLUE, (thresholds["unowned_gpu_bytes"], ORANGE)),
            ),
        ),
    )


def _sources() -> list[Json]:
    return [
        lanes(
            "Sources",
            "Whether NVML or dcgm-exporter answered; the state is written into the lane.",
            Query(f"min by (source) ({_source('kvcache_gpu_source_up')})", "{{source}}"),
            size=(12, 8),
            no_value="no GPU source configured",
            mappings=UP_DOWN,
        ),
        lines(
            "GPUs seen and expected",
            "A solid line below its dashed one is a GPU that fell off.",
            Query(f"sum by (source) ({_source('kvcache_gpus_seen')})", "{{source}} seen"),
            Query(f"sum by (source) ({_source('kvcache_gpus_expected')})", "{{source}} expected"),
            unit="none",
            decimals=0,
            size=(12, 8),
            no_value="no GPU source configured",
            overrides=(
                {
                    "matcher": {"id": "byRegexp", "options": "/ expected$/"},
                    "properties": [
                        {
                            "id": "custom.lineStyle",
                            "value": {"fill": "dash", "dash": [8, 6]},
                        }
                    ],
                },
            ),
        ),
    ]
