"""Can the verdicts be trusted: does the exporter itself do its work?"""

from __future__ import annotations

from grafana.frame import dashboard, section, variable
from grafana.looks import BAD_ABOVE_0, BLUE, NONE, ORANGE, VERMILION, Json, steps, words
from grafana.panels import by_name, lines, painted, stat, table
from grafana.queries import Query, now, rows

SELF = 'job=~"$job", instance=~"$instance"'


def board(thresholds: Json) -> Json:
    """The watcher, watched."""
    return dashboard(
        "kvcache-exporter",
        "KV cache / Exporter",
        __doc__ or "",
        [
            variable("job", "Job", "kvcache_exporter_targets"),
            variable("instance", "Instance", 'kvcache_exporter_targets{job=~"$job"}'),
        ],
        [
            section("", *_tiles(thresholds)),
            section("Does each cycle end in time", *_cycles(thresholds)),
            section("Do the targets answer", *_targets()),
            section("Which version runs where", _versions()),
        ],
    )


def _self(metric: str) -> str:
    return f"{metric}{{{SELF}}}"


def _worst_targets(expr: str) -> str:
    ranked = f"topk(10, avg_over_time(({expr})[$__range:$__interval] @ end()))"
    return f"({expr}) and on (target) {ranked}"


def _tiles(thresholds: Json) -> list[Json]:
    up = f"max by (target) ({_self('kvcache_target_up')})"
    return [
        stat(
            "Exporters",
            "Exporters that Prometheus can scrape.",
            now(f"count({_self('kvcache_exporter_targets')})"),
            unit="none",
            width=4,
            no_value="none scraped",
        ),
        stat(
            "Last cycle ended",
            "Age of the oldest newest cycle. Red from where it is an alert: older values are "
            "history, not state.",
            now(f"max(time() - {_self('kvcache_exporter_cycle_timestamp_seconds')})"),
            unit="s",
            decimals=0,
            width=4,
            no_value="none scraped",
            thresholds=steps(BLUE, (thresholds["cycle_stale_seconds"], VERMILION)),
        ),
        stat(
            "Longest cycle",
            "Duration of the last cycle of the slowest exporter. Orange from where the next one "
            "falls out.",
            now(f"max({_self('kvcache_exporter_cycle_duration_seconds')})"),
            unit="s",
            decimals=2,
            width=4,
            thresholds=steps(BLUE, (thresholds["cycle_slow_seconds"], ORANGE)),
        ),
        stat(
            "Configuration",
            "Whether the last reload was taken; after a refused one the old stays in force.",
            now(f"min({_self('kvcache_exporter_config_last_reload_successful')})"),
            unit="none",
            width=4,
            mappings=words({0: ("reload refused", VERMILION), 1: ("in force", BLUE)}),
        ),
        stat(
            "Targets",
            "Targets known to these exporters.",
            now(f"sum({_self('kvcache_exporter_targets')})"),
            unit="none",
            width=4,
        ),
        stat(
            "Targets down",
            "Targets whose last scrape gave no vLLM series.",
            now(f"count({up}) - sum({up})"),
            unit="none",
            width=4,
            mappings=NONE,
            thresholds=BAD_ABOVE_0,
        ),
    ]


def _cycles(thresholds: Json) -> list[Json]:
    return [
        lines(
            "Duration of a cycle",
            "Scraping, reading GPUs and judging, all targets together. The line is the default "
            "interval.",
            Query(
                f"max by (instance) ({_self('kvcache_exporter_cycle_duration_seconds')})",
                "{{instance}}",
            ),
            unit="s",
            limits=steps(BLUE, (thresholds["cycle_slow_seconds"], ORANGE)),
        ),
        lines(
            "Age of the newest cycle",
            "It grows by a second a second while an exporter is stuck. The line is the alert's.",
            Query(
                f"max by (instance) (time() - {_self('kvcache_exporter_cycle_timestamp_seconds')})",
                "{{instance}}",
            ),
            unit="s",
            limits=steps(BLUE, (thresholds["cycle_stale_seconds"], VERMILION)),
        ),
    ]


def _targets() -> list[Json]:
    up = f"max by (target) ({_self('kvcache_target_up')})"
    failures = _self("kvcache_target_scrape_failures_total")
    return [
        lines(
            "Targets",
            "Known targets, and how many of them answer.",
            Query(f"count({up})", "Known"),
            Query(f"sum({up})", "Answering"),
            unit="none",
            decimals=0,
            overrides=(painted("Known", BLUE, dashed=True), painted("Answering", BLUE)),
        ),
        lines(
            "Failed scrapes by reason",
            "Scrapes a second that gave no vLLM series.",
            Query(f"sum by (reason) (rate({failures}[$__rate_interval]))", "{{reason}}"),
            unit="cps",
            no_value="none failed",
        ),
        lines(
            "Slowest targets",
            "Time from asking to having the whole answer, the 10 slowest targets.",
            Query(
                _worst_targets(
                    f"max by (target) ({_self('kvcache_target_scrape_duration_seconds')})"
                ),
                "{{target}}",
            ),
            unit="s",
        ),
        lines(
            "Longest without an answer",
            "Age of the last scrape that gave vLLM series, the 10 oldest targets.",
            Query(
                _worst_targets(
                    "max by (target) (time() - "
                    f"{_self('kvcache_target_last_success_timestamp_seconds')})"
                ),
                "{{target}}",
            ),
            unit="s",
        ),
        lines(
            "Targets by problem",
            "What keeps targets from being read or judged.",
            Query(
                f"sum by (problem) (max by (target, problem) ({_self('kvcache_target_problem')}))",
                "{{problem}}",
            ),
            unit="none",
            decimals=0,
            no_value="no problems",
            size=(24, 8),
        ),
    ]


def _versions() -> Json:
    by = "by (instance)"
    return table(
        "Exporters",
        "Version, Python and number of targets of each exporter.",
        rows(f"max by (instance, version, python) ({_self('kvcache_exporter_build_info')})"),
        rows(f"max {by} ({_self('kvcache_exporter_targets')})"),
        rows(f"max {by} ({_self('kvcache_exporter_cycle_duration_seconds')})"),
        columns={
            "instance": "Instance",
            "version": "Version",
            "python": "Python",
            "Value #B": "Targets",
            "Value #C": "Last cycle",
        },
        hidden=("Value #A",),
        size=(24, 6),
        overrides=(by_name("Last cycle", unit="s", decimals=2),),
    )
