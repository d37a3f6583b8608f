"""Pages of vLLM releases of which there is no recording, made from their source's metric lists.

`page(version, *engines, **switches)` prints what a server of that release with these engines would
print, each release's traps included; `EngineState` is the truth that a reader has to find in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from version_state import (
    DATA,
    EngineState,
    Server,
    cache_config_labels,
    labelled,
    number,
    observations,
    value,
)

__all__ = ["VERSIONS", "EngineState", "page"]

VERSIONS = (
    *("0.4.2", "0.6.6.post1", "0.8.5", "0.9.0.1", "0.9.1", "0.9.2", "0.10.0", "0.10.1.1"),
    *("0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.13.0", "0.15.1", "0.17.1", "0.19.1", "0.20.2"),
    *("0.22.1", "0.24.0", "0.25.1", "0.28.0", "0.30.0", "0.32.0"),
)
START_TIME = 1_790_000_000.5
BUCKETS = (1.0, 10.0, 100.0, 1000.0, float("inf"))


def page(
    version: str,
    *engines: EngineState,
    core: str | None = None,
    multiprocess: bool | None = None,
    prefix_caching: bool = True,
    features: Sequence[str] = (),
    num_gpu_blocks: str | None = None,
    pid_used_blocks: tuple[int, ...] = (),
    without: Sequence[str] = (),
    prefix: str = "vllm:",
) -> bytes:
    """The page of a server with these engines, one data-parallel rank each.

    `features` are words of the conditions in the data file ("NixlConnector", "hidden");
    `num_gpu_blocks` overrides the label; `pid_used_blocks` are the stale and last values that the
    API-server processes hold where gauges are copied by pid; `without` drops families by name.
    """
    core = core or ("V0" if number(version) < (0, 8) else "V1")
    if multiprocess is None:
        multiprocess = _several_processes(version, core, len(engines))
    server = Server(
        version,
        core,
        multiprocess,
        prefix_caching,
        num_gpu_blocks,
        pid_used_blocks or (0, engines[-1].used_blocks),
    )
    ranked = list(enumerate(engines))
    if number(version) < (0, 10):
        ranked = ranked[-1:]  # each rank's logger unregistered the one before
    lines: list[str] = [] if server.multiprocess else list(_process_lines())
    for family in DATA["families"]:
        wanted = version in family["versions"] and family["core"] == core
        if wanted and family["name"] not in without and _switched_on(family, features):
            lines += _family_lines(server, family, ranked, engines, prefix)
    return ("\n".join(lines) + "\n").encode()


def _several_processes(version: str, core: str, engines: int) -> bool:
    """Whether a server started without further flags keeps its metrics in several processes."""
    if core == "V0":
        return number(version) >= (0, 6)
    return number(version) >= (0, 15) and engines > 1


def _switched_on(family: dict[str, Any], features: Sequence[str]) -> bool:
    condition = family.get("condition")
    return condition is None or any(word in condition for word in features)


def _process_lines() -> Iterator[str]:
    yield "# HELP process_resident_memory_bytes Resident memory size in bytes."
    yield "# TYPE process_resident_memory_bytes gauge"
    yield "process_resident_memory_bytes 6.4464896e+08"
    yield "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."
    yield "# TYPE process_start_time_seconds gauge"
    yield f"process_start_time_seconds {START_TIME!r}"


def _family_lines(
    server: Server,
    family: dict[str, Any],
    ranked: Sequence[tuple[int, EngineState]],
    engines: Sequence[EngineState],
    prefix: str,
) -> Iterator[str]:
    name, kind = prefix + family["name"], family["type"]
    yield f"# HELP {name} As the release's source declares it."
    yield f"# TYPE {name} {kind}"
    children: list[dict[str, str]] = []
    for rank, state in ranked:
        for labels, amount in _children(server, family, rank, state, engines):
            children.append(labels)
            if kind == "histogram":
                yield from _histogram_lines(
                    name, labels, amount, observations(family["name"], state)
                )
            else:
                yield _line(name, labels, amount)
    if kind != "gauge" and server.core == "V1" and not server.multiprocess:
        created = name.removesuffix("_total") if kind == "counter" else name
        yield f"# TYPE {created}_created gauge"
        yield from (_line(f"{created}_created", labels, START_TIME + 9) for labels in children)


def _children(
    server: Server,
    family: dict[str, Any],
    rank: int,
    state: EngineState,
    engines: Sequence[EngineState],
) -> Iterator[tuple[dict[str, str], float]]:
    """(labels, value) of one family's children for one engine."""
    name = family["name"]
    if name == "cache_config_info":
        yield cache_config_labels(server, rank, state, engines), 1
        return
    known = {"model_name": state.model_name, "engine": str(rank)}
    labels = {label: known.get(label, "") for label in family["labels"]}
    extra = [label for label in labels if label not in known]
    if extra:
        choices = labelled(server, name, extra[0], state)
        yield from (({**labels, extra[0]: choice}, amount) for choice, amount in choices.items())
    elif server.multiprocess and family.get("multiprocess") == "all":
        for pid, used in enumerate(server.pid_used_blocks, start=301):
            seen = replace(state, used_blocks=used)
            yield {**labels, "pid": str(pid)}, value(server, name, seen)
    else:
        yield labels, value(server, name, state)


def _histogram_lines(
    name: str, labels: dict[str, str], total: float, observations: int
) -> Iterator[str]:
    for bound in BUCKETS:
        le = "+Inf" if bound == float("inf") else repr(bound)
        within = observations if bound * observations >= total else 0
        yield _line(f"{name}_bucket", {**labels, "le": le}, within)
    yield _line(f"{name}_count", labels, observations)
    yield _line(f"{name}_sum", labels, total)


def _line(name: str, labels: dict[str, str], value: float) -> str:
    printed = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{printed}}} {float(value)!r}"
