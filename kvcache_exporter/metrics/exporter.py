"""What only the whole snapshot tells, the exporter itself included."""

from __future__ import annotations

import platform

from kvcache_exporter import __version__
from kvcache_exporter.metrics._metric import Metric, metric
from kvcache_exporter.model import Snapshot

METRICS: tuple[Metric[Snapshot], ...] = (
    Metric(
        "kvcache_gpu_outside_pool_bytes",
        "Growth of GPU memory outside the KV pool since warm-up.",
        lambda s: [((("uuid", uuid),), value) for uuid, value in s.gpu_outside_pool_bytes],
        ("uuid",),
    ),
    Metric(
        "kvcache_gpu_unowned_bytes",
        "GPU memory held by no live engine.",
        lambda s: [((("uuid", uuid),), value) for uuid, value in s.gpu_unowned_bytes],
        ("uuid",),
    ),
    Metric(
        "kvcache_exporter_build_info",
        "Always 1; version of this exporter.",
        lambda s: [((("version", __version__), ("python", platform.python_version())), 1.0)],
        ("version", "python"),
    ),
    metric(
        "kvcache_exporter_cycle_duration_seconds",
        "Time the last cycle took.",
        lambda s: s.cycle_duration_seconds,
    ),
    metric(
        "kvcache_exporter_cycle_timestamp_seconds",
        "When the last cycle ended; it stands still when the exporter is stuck.",
        lambda s: s.time,
    ),
    metric(
        "kvcache_exporter_config_last_reload_successful",
        "0 after a reload was refused; the old configuration stays in force.",
        lambda s: float(s.config_reload_ok),
    ),
    Metric(
        "kvcache_exporter_problem",
        "1 for each kind of thing wrong that is no target's own, such as a list of targets that "
        "cannot be had (file_sd, http_sd, kubernetes): the last good one stays in force.",
        lambda s: [((("problem", code),), 1.0) for code in sorted({p.code for p in s.problems})],
        ("problem",),
    ),
    metric("kvcache_exporter_targets", "Targets known to the exporter.", lambda s: len(s.targets)),
)
