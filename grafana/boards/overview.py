"""Which engines are in trouble, why, and since when?"""

from __future__ import annotations

from typing import Any

from grafana.frame import dashboard, engine_link, section, variable
from grafana.looks import (
    BAD_ABOVE_0,
    BLUE,
    NONE,
    ORANGE,
    STATE_LOOKS,
    Json,
    full_in,
    preemptions,
    states_by_code,
    states_by_name,
    steps,
    usage,
)
from grafana.panels import by_name, lanes, lines, painted, stat, table
from grafana.queries import (
    FLEET,
    NOT_OK,
    Query,
    fleet,
    fleet_targets,
    in_trouble,
    least_often_ok,
    now,
    rows,
    state_code,
    worst,
)

ONE_LEGEND = "{{target}} {{engine}}"
USED = f"{fleet('kvcache_used_blocks')} / {fleet('kvcache_pool_blocks')}"


def board(thresholds: Json) -> Json:
    """The entry point: what happens in the fleet, most urgent first."""
    return dashboard(
        "kvcache-overview",
        "KV cache / Fleet",
        __doc__ or "",
        [
            variable("job", "Job", "kvcache_exporter_targets"),
            variable("namespace", "Namespace", 'kvcache_verdict{job=~"$job"}', all_value=".*"),
            variable(
                "model_name",
                "Model",
                'kvcache_engine_info{job=~"$job", namespace=~"$namespace"}',
                all_value=".*",
            ),
            variable("target", "Target", 'kvcache_target_up{job=~"$job", namespace=~"$namespace"}'),
        ],
        [
            section("", *_tiles(thresholds)),
            section("Who is in trouble, why, and since when", _troubled(thresholds), *_history()),
            section("Is it a leak", *_leak()),
            section("Is it load, or the cache", *_load(thresholds)),
            section("What else was found", *_findings()),
            section("All engines", _everybody(thresholds), collapsed=True),
        ],
    )


def _count_in(*states: str) -> str:
    matcher = f'state=~"{"|".join(states)}"'
    return f"sum({fleet('kvcache_verdict', matcher)})"


def _tiles(thresholds: Json) -> list[Json]:
    counted: Json = {"unit": "none", "width": 3, "mappings": NONE, "thresholds": BAD_ABOVE_0}
    up = fleet_targets("kvcache_target_up")
    return [
        stat(
            "Leaking",
            "Engines with an established leak, whatever else is wrong with them: blocks proven to "
            "be owned by nobody, or a loss of free blocks that load does not explain.",
            now(f"sum({fleet('kvcache_leak_active')})"),
            **counted,
        ),
        stat(
            "Leak suspected",
            "Engines that look like leaking, not yet long or clear enough to say so.",
            now(_count_in("leak_suspect")),
            **(counted | {"thresholds": steps(BLUE, (1, ORANGE))}),
        ),
        stat(
            "Not serving",
            "Engines that are stalled, whose gauges are frozen, or that give no data: a healthy "
            "/health says nothing about these.",
            now(_count_in("stalled", "stale", "no_data")),
            **counted,
        ),
        stat(
            "Short of room",
            "Engines that preempt more than they finish, or are full of work: load, not a leak.",
            now(_count_in("preemption_storm", "saturated")),
            **(counted | {"thresholds": steps(BLUE, (1, ORANGE))}),
        ),
        stat(
            "First pool full in",
            "Time until the first pool is full at the present load-independent slope. Orange and "
            "red are the limits of the ticket and of the page.",
            now(f"min({fleet('kvcache_exhaustion_timestamp_seconds')}) - time()"),
            unit="s",
            width=3,
            no_value="none in sight",
            decimals=1,
            thresholds=full_in(thresholds),
        ),
        stat(
            "Blocks in use",
            "Used blocks of all pools together. Cached blocks that nobody uses count as free.",
            now(f"sum({fleet('kvcache_used_blocks')}) / sum({fleet('kvcache_pool_blocks')})"),
            unit="percentunit",
            width=3,
            decimals=1,
            thresholds=usage(thresholds),
        ),
        stat(
            "Engines",
            "Engines that are watched.",
            now(f"count({fleet('kvcache_leak_active')})"),
            unit="none",
            width=3,
        ),
        stat(
            "Targets down",
            "Targets whose last scrape gave no vLLM series.",
            now(f"count({up}) - sum({up})"),
            **counted,
        ),
    ]


def _troubled(thresholds: Json) -> Json:
    verdict = fleet("kvcache_verdict", NOT_OK, by="target, engine, state")
    info = fleet("kvcache_engine_info", by="target, engine, model_name, vllm_version")
    return table(
        "Engines in trouble",
        "Every engine whose state is neither OK nor still unknown. Blocks proven to be owned by "
        "nobody come first. Click a target to open its engine. Empty: nobody is in trouble.",
        rows(f"{verdict} == 1"),
        rows(in_trouble(info)),
        rows(in_trouble(f"time() - {fleet('kvcache_verdict_since_timestamp_seconds')}")),
        rows(in_trouble(fleet("kvcache_verdict_confidence_ratio"))),
        rows(in_trouble(fleet("kvcache_orphaned_blocks_low"))),
        rows(in_trouble(USED)),
        rows(in_trouble(f"3600 * {fleet('kvcache_free_blocks_slope_per_second')}")),
        rows(in_trouble(f"{fleet('kvcache_exhaustion_timestamp_seconds')} - time()")),
        rows(in_trouble(fleet("kvcache_prefix_hit_ratio"))),
        rows(in_trouble(fleet("kvcache_preemptions_per_completion_ratio"))),
        rows(in_trouble(fleet("kvcache_requests", 'state="waiting"'))),
        columns={
            "target": "Target",
            "engine": "Engine",
            "model_name": "Model",
            "vllm_version": "vLLM",
            "state": "State",
            "Value #C": "Since",
            "Value #D": "Confidence",
            "Value #E": "Orphaned, proven",
            "Value #F": "Blocks used",
            "Value #G": "Free blocks / h",
            "Value #H": "Full in",
            "Value #I": "Hit ratio",
            "Value #J": "Preemptions / completion",
            "Value #K": "Waiting",
        },
        hidden=("Value #A", "Value #B"),
        sort="Orphaned, proven",
        size=(24, 9),
        no_value="–",
        overrides=(
            by_name("Target", links=engine_link("data.fields"), custom__width=190),
            by_name("Engine", custom__width=75),
            by_name("vLLM", custom__width=80),
            _coloured("State", mappings=states_by_name(), custom__width=150),
            by_name("Since", unit="s", decimals=1, custom__width=100),
            by_name("Confidence", unit="percentunit", decimals=0, custom__width=100),
            by_name("Orphaned, proven", unit="locale", custom__width=135),
            _coloured("Blocks used", unit="percentunit", decimals=1, thresholds=usage(thresholds)),
            by_name("Free blocks / h", unit="locale", decimals=1),
            _coloured("Full in", unit="s", decimals=1, thresholds=full_in(thresholds)),
            by_name("Hit ratio", unit="percentunit", decimals=1),
            _coloured(
                "Preemptions / completion",
                decimals=2,
                thresholds=preemptions(thresholds),
            ),
        ),
    )


def _coloured(column: str, **properties: Any) -> Json:
    return by_name(column, custom__cellOptions={"type": "color-text"}, **properties)


def _history() -> list[Json]:
    return [
        lanes(
            "Verdicts of the 20 engines least often OK",
            "One lane an engine, the state written into it; a gap is a time without a verdict.",
            Query(least_often_ok(state_code(FLEET)), ONE_LEGEND),
            size=(16, 11),
            mappings=states_by_code(),
            links=engine_link("field.labels"),
        ),
        lines(
            "Engines by state",
            "How many engines are in each state. The whole fleet at once is rather a release or "
            "the load than one engine.",
            Query(
                f"sum by (state) ({fleet('kvcache_verdict', by='target, engine, state')}) > 0",
                "{{state}}",
            ),
            unit="none",
            decimals=0,
            fill=60,
            stacked=True,
            calcs=["lastNotNull"],
            size=(8, 11),
            overrides=tuple(
                painted(str(state), colour, displayName=text)
                for state, (text, colour) in STATE_LOOKS.items()
            ),
        ),
    ]


def _leak() -> list[Json]:
    return [
        lines(
            "Blocks proven to be owned by nobody",
            "Lower bound of orphaned blocks, the 10 highest engines. Above zero is proof, not an "
            "estimate.",
            Query(worst(f"{fleet('kvcache_orphaned_blocks_low')}"), ONE_LEGEND),
            unit="locale",
            size=(8, 9),
        ),
        lines(
            "Free blocks lost per hour",
            "Load-independent loss of free blocks, the 10 highest engines. A flat line at zero is "
            "what a healthy engine shows, however busy it is.",
            Query(worst(f"-3600 * {fleet('kvcache_free_blocks_slope_per_second')}"), ONE_LEGEND),
            unit="locale",
            size=(8, 9),
        ),
        lines(
            "Used blocks at the last idle moment",
            "Idle floor as a share of the pool, the 10 highest engines. What is used while nobody "
            "runs or waits is held by nobody, or by a transfer that may still end.",
            Query(
                worst(f"{fleet('kvcache_idle_floor_blocks')} / {fleet('kvcache_pool_blocks')}"),
                ONE_LEGEND,
            ),
            unit="percentunit",
            size=(8, 9),
        ),
    ]


def _load(thresholds: Json) -> list[Json]:
    drop = f"{fleet('kvcache_prefix_hit_ratio_baseline')} - {fleet('kvcache_prefix_hit_ratio')}"
    return [
        lines(
            "Blocks in use",
            "Share of the pool in use, the 10 highest engines. High usage alone is load.",
            Query(worst(USED), ONE_LEGEND),
            unit="percentunit",
            max=1,
            limits=usage(thresholds),
            size=(8, 9),
        ),
        lines(
            "Preemptions per completed request",
            "The 10 highest engines. Above the upper line an engine redoes more than it finishes.",
            Query(worst(fleet("kvcache_preemptions_per_completion_ratio")), ONE_LEGEND),
            unit="none",
            decimals=2,
            limits=preemptions(thresholds),
            size=(8, 9),
        ),
        lines(
            "Prefix hit ratio below its baseline",
            "Points by which the hit ratio is below what is usual at this time of day, the 10 "
            "largest. From the line on the judge may call it a drift.",
            Query(worst(drop), ONE_LEGEND),
            unit="percentunit",
            limits=steps(BLUE, (thresholds["hit_ratio_drift_ratio"], ORANGE)),
            size=(8, 9),
        ),
    ]


def _findings() -> list[Json]:
    return [
        table(
            "Findings beside the state",
            "What is true of an engine now, whatever its state: a drifting hit ratio, growth "
            "outside the pool, a restart. Empty: nothing was found.",
            rows(f"{fleet('kvcache_finding', by='target, engine, finding')} == 1"),
            columns={"target": "Target", "engine": "Engine", "finding": "Finding"},
            hidden=("Value",),
            overrides=(by_name("Target", links=engine_link("data.fields")),),
            size=(12, 8),
        ),
        table(
            "Problems of targets",
            "What keeps a target from being read or judged. The status page of the exporter says "
            "each in words, with what to do next. Empty: all can be read.",
            rows(f"{fleet_targets('kvcache_target_problem', by='target, problem')} == 1"),
            rows(
                f"(time() - {fleet_targets('kvcache_target_last_success_timestamp_seconds')}) and "
                f"on (target) {fleet_targets('kvcache_target_problem', by='target, problem')}"
            ),
            columns={"target": "Target", "problem": "Problem", "Value #B": "Last success"},
            hidden=("Value #A",),
            overrides=(by_name("Last success", unit="s", decimals=0),),
            size=(12, 8),
        ),
    ]


def _everybody(thresholds: Json) -> Json:
    verdict = fleet("kvcache_verdict", by="target, engine, state")
    return table(
        "All engines",
        "Every engine of the choice above, at most a thousand. Click a target to open its engine.",
        rows(f"{verdict} == 1"),
        rows(fleet("kvcache_engine_info", by="target, engine, model_name, vllm_version")),
        rows(USED),
        rows(fleet("kvcache_requests", 'state="running"')),
        rows(fleet("kvcache_completions_per_second")),
        columns={
            "target": "Target",
            "engine": "Engine",
            "model_name": "Model",
            "vllm_version": "vLLM",
            "state": "State",
            "Value #C": "Blocks used",
            "Value #D": "Running",
            "Value #E": "Completions / s",
        },
        hidden=("Value #A", "Value #B"),
        limit=1000,
        sort="Blocks used",
        size=(24, 12),
        overrides=(
            by_name("Target", links=engine_link("data.fields")),
            _coloured("State", mappings=states_by_name()),
            _coloured("Blocks used", unit="percentunit", decimals=1, thresholds=usage(thresholds)),
            by_name("Completions / s", unit="reqps", decimals=2),
        ),
    )
