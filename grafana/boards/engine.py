"""What is wrong with this engine, what proves it, and how long does it last?"""

from __future__ import annotations

from grafana.frame import dashboard, section, variable
from grafana.looks import (
    BLUE,
    DIM,
    GREY,
    NONE,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    YES_NO,
    Json,
    full_in,
    preemptions,
    states_by_code,
    steps,
    words,
)
from grafana.panels import band, lanes, limit, lines, painted, stat, table
from grafana.queries import ENGINE, Query, engine, engine_gpus, now, rows, state_code, target


def board(thresholds: Json) -> Json:
    """One engine, from the verdict down to the evidence."""
    known = 'kvcache_verdict{job=~"$job", namespace=~"$namespace"}'
    return dashboard(
        "kvcache-engine",
        "KV cache / Engine",
        __doc__ or "",
        [
            variable("job", "Job", "kvcache_exporter_targets"),
            variable("namespace", "Namespace", 'kvcache_verdict{job=~"$job"}', all_value=".*"),
            variable("target", "Target", known, many=False),
            variable(
                "engine", "Engine", 'kvcache_verdict{job=~"$job", target="$target"}', many=False
            ),
            variable("gpu", "GPU", f"kvcache_engine_gpu_info{{{ENGINE}}}"),
        ],
        [
            section("", *_tiles(thresholds)),
            section("Verdict", *_verdict()),
            section(
                "Blocks: is it a leak, and for how long does the pool last", *_blocks(thresholds)
            ),
            section("Load and cache", *_load(thresholds)),
            section("Beside the pool", *_beside()),
        ],
    )


def _tiles(thresholds: Json) -> list[Json]:
    return [
        stat(
            "Verdict",
            "The state this engine is in; exactly one at a time.",
            now(state_code(ENGINE)),
            unit="none",
            width=4,
            mappings=states_by_code(),
        ),
        stat(
            "For",
            "How long this state has held.",
            now(f"time() - {engine('kvcache_verdict_since_timestamp_seconds')}"),
            unit="s",
            decimals=1,
            width=3,
        ),
        stat(
            "Confidence",
            "How sure the verdict is.",
            now(engine("kvcache_verdict_confidence_ratio")),
            unit="percentunit",
            decimals=0,
            width=3,
        ),
        stat(
            "Leak established",
            "Stays yes while the engine is saturated or stalled by its leak.",
            now(engine("kvcache_leak_active")),
            unit="none",
            width=3,
            mappings=words({0: ("no", BLUE), 1: ("yes", VERMILION)}),
        ),
        stat(
            "Orphaned, proven",
            "Lower bound of the blocks that nobody owns and nobody will give back.",
            now(engine("kvcache_orphaned_blocks_low")),
            unit="locale",
            width=3,
            mappings=NONE,
            thresholds=steps(BLUE, (1, VERMILION)),
        ),
        stat(
            "Pool full in",
            "At the present slope. Orange and red are the limits of the ticket and of the page.",
            now(f"{engine('kvcache_exhaustion_timestamp_seconds')} - time()"),
            unit="s",
            decimals=1,
            width=4,
            no_value="not in sight",
            thresholds=full_in(thresholds),
        ),
        stat(
            "Blocks lost per event",
            "What the loss goes with best: blocks for each such event.",
            now(engine("kvcache_blocks_lost_per_event", by="event"), "per {{event}}"),
            unit="none",
            decimals=2,
            width=4,
            text_mode="value_and_name",
            no_value="no correlate",
            thresholds=steps(BLUE, (0.01, ORANGE)),
        ),
    ]


def _verdict() -> list[Json]:
    return [
        lanes(
            "Verdict over time",
            "The state, written into the lane; a gap is a time without a verdict.",
            Query(state_code(ENGINE), "verdict"),
            size=(24, 4),
            mappings=states_by_code(),
        ),
        lanes(
            "Reasons beside the state",
            "Findings that can be true in any state. `kvcache-exporter explain URL` and the "
            "exporter's status page say every reason in words, with its numbers.",
            Query(engine("kvcache_finding", by="finding"), "{{finding}}"),
            size=(14, 8),
            mappings=YES_NO,
        ),
        lanes(
            "Problems of the target",
            "What keeps this target from being read or judged. Nothing here: it can be read.",
            Query(target("kvcache_target_problem", by="problem"), "{{problem}}"),
            Query(target("kvcache_target_up"), "answers"),
            size=(10, 8),
            no_value="none",
            mappings=YES_NO,
        ),
    ]


def _blocks(thresholds: Json) -> list[Json]:
    slope = "kvcache_free_blocks_slope{}_per_second"
    return [
        lines(
            "Used blocks against the pool",
            "Used blocks go up and down with load; the idle floor and the orphaned blocks must "
            "not rise. The distance from used to pool is what requests can still get.",
            Query(engine("kvcache_pool_blocks"), "Pool"),
            Query(engine("kvcache_used_blocks"), "Used"),
            Query(engine("kvcache_idle_floor_blocks"), "Idle floor"),
            Query(engine("kvcache_orphaned_blocks"), "Orphaned, estimate"),
            Query(engine("kvcache_orphaned_blocks_low"), "Orphaned, proven"),
            Query(engine("kvcache_free_blocks"), "Free"),
            unit="locale",
            size=(12, 11),
            overrides=(
                limit("Pool"),
                painted("Used", BLUE, custom__fillOpacity=10),
                painted("Idle floor", YELLOW),
                painted("Orphaned, estimate", ORANGE, dashed=True),
                painted("Orphaned, proven", VERMILION, custom__fillOpacity=25),
                painted("Free", DIM, custom__lineWidth=1),
            ),
        ),
        lines(
            "Slope of free blocks, load taken out",
            "With its 95 % interval. While the whole band is below zero, blocks are being lost "
            "and load does not explain it.",
            Query(f"3600 * {engine(slope.format(''))}", "Slope"),
            Query(f"3600 * {engine(slope.format('_low'))}", "95 % low"),
            Query(f"3600 * {engine(slope.format('_high'))}", "95 % high"),
            unit="locale",
            decimals=1,
            size=(12, 11),
            axis="blocks per hour",
            limits=steps(VERMILION, (0, BLUE)),
            overrides=(painted("Slope", BLUE), *band("95 % low", "95 % high", SKY)),
        ),
        lines(
            "Time until the pool is full",
            "At the slope, and at both ends of its interval. The lines are the limits of the "
            "page and of the ticket. No line: not in sight.",
            Query(f"{engine('kvcache_exhaustion_timestamp_seconds')} - time()", "Expected"),
            Query(
                f"{engine('kvcache_exhaustion_earliest_timestamp_seconds')} - time()", "Earliest"
            ),
            Query(f"{engine('kvcache_exhaustion_latest_timestamp_seconds')} - time()", "Latest"),
            unit="s",
            size=(12, 9),
            no_value="not in sight",
            calcs=["lastNotNull", "min"],
            limits=full_in(thresholds),
            overrides=(painted("Expected", BLUE), *band("Earliest", "Latest", SKY)),
        ),
        lines(
            "Confidence of the verdict",
            "How sure the verdict is; it rises with every idle moment and with every hour seen.",
            Query(engine("kvcache_verdict_confidence_ratio"), "Confidence"),
            unit="percentunit",
            max=1,
            size=(12, 9),
            overrides=(painted("Confidence", BLUE),),
        ),
    ]


def _load(thresholds: Json) -> list[Json]:
    return [
        lines(
            "Requests",
            "Running and waiting. A queue in front of an engine that completes nothing is a stall.",
            Query(engine("kvcache_requests", 'state="running"'), "Running"),
            Query(engine("kvcache_requests", 'state="waiting"'), "Waiting"),
            unit="none",
            size=(8, 9),
            overrides=(painted("Running", BLUE), painted("Waiting", ORANGE)),
        ),
        lines(
            "Completed requests",
            "Zero while requests run and wait is what a stall looks like.",
            Query(engine("kvcache_completions_per_second"), "Completed"),
            unit="reqps",
            size=(8, 9),
            overrides=(painted("Completed", BLUE),),
        ),
        lines(
            "Preemptions per completed request",
            "Above the upper line the engine redoes more than it finishes.",
            Query(engine("kvcache_preemptions_per_completion_ratio"), "Preemptions"),
            unit="none",
            decimals=2,
            size=(8, 9),
            limits=preemptions(thresholds),
            overrides=(painted("Preemptions", BLUE),),
        ),
        lines(
            "Prefix hit ratio and its baseline",
            "Share of looked-up prompt tokens found in the cache, against what is usual at this "
            "time of day.",
            Query(engine("kvcache_prefix_hit_ratio"), "Hit ratio"),
            Query(engine("kvcache_prefix_hit_ratio_baseline"), "Usual"),
            unit="percentunit",
            max=1,
            size=(12, 9),
            overrides=(painted("Hit ratio", BLUE), painted("Usual", GREY, dashed=True)),
        ),
        lanes(
            "Hit ratio drifted",
            "Yes while the hit ratio is further below its baseline than chance explains; not "
            "judged without enough looked-up tokens.",
            Query(engine("kvcache_prefix_hit_ratio_drift"), "drift"),
            size=(12, 9),
            no_value="not judged",
            mappings=YES_NO,
        ),
    ]


def _beside() -> list[Json]:
    return [
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
                painted("Free", DIM),
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
            "From vLLM's own page and its /version.",
            rows(f"kvcache_engine_info{{{ENGINE}}}"),
            rows(engine("kvcache_pool_blocks", by="target, engine")),
            rows(engine("kvcache_pool_tokens", by="target, engine")),
            rows(engine("kvcache_pool_bytes", by="target, engine")),
            rows(engine("kvcache_used_bytes", by="target, engine")),
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
                "Value #E": "Used size",
            },
            hidden=("Value #A", "__name__", "job", "instance"),
            unit="locale",
            size=(24, 4),
            overrides=(
                {
                    "matcher": {"id": "byRegexp", "options": "/size$/"},
                    "properties": [{"id": "unit", "value": "bytes"}],
                },
            ),
        ),
    ]
