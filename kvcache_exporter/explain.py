"""One target through every stage in words: what came back, what it means, who judges it how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from kvcache_exporter.audits.answers import blocks_by_owner
from kvcache_exporter.hosts.merge import Assignment
from kvcache_exporter.model import (
    Audit,
    EngineReading,
    EngineStatus,
    GpuReading,
    Problem,
    Scrape,
    TargetReading,
    TargetStatus,
)

_SHOWN_ALREADY = frozenset({"engine", "problems"})


@dataclass(frozen=True, slots=True)
class Looked:
    """Everything that one look at a target gave."""

    scrape: Scrape
    reading: TargetReading
    gpus: tuple[GpuReading, ...]
    assignment: Assignment
    status: TargetStatus
    engines: tuple[EngineStatus, ...]
    scrapes: int
    """Scrapes that the judges have seen so far."""
    gpu_problems: tuple[Problem, ...] = ()


def explain(looked: Looked) -> Iterator[str]:
    """Yield the lines of the explanation, stage by stage."""
    yield from _scrape(looked)
    for engine in looked.engines:
        yield ""
        yield f"Engine {engine.engine}"
        yield from _reading(engine.reading)
        yield from _owners(engine.audit)
        yield from _gpus(engine, looked)
        yield from _judgement(engine, looked.scrapes)
    if looked.status.problems:
        yield ""
        yield "Problems"
        yield from (f"  {problem.code}: {problem.text}" for problem in looked.status.problems)


def _scrape(looked: Looked) -> Iterator[str]:
    scrape, target = looked.scrape, looked.status.target
    yield f"Target {target.name}  {target.url}"
    yield "Scrape"
    if scrape.body is None:
        yield f"  failed after {scrape.duration_seconds * 1e3:.1f} ms"
    else:
        how = "filtered route" if scrape.filtered else "whole page"
        size, took = len(scrape.body), scrape.duration_seconds * 1e3
        yield f"  {size:,} bytes in {took:.1f} ms ({how})"
        version = looked.reading.vllm_version or "not told"
        yield f"  vLLM version {version}, {len(looked.reading.engines)} engine(s)"


def _reading(reading: EngineReading | None) -> Iterator[str]:
    yield "  Reading"
    if reading is None:
        yield "    nothing: the last scrape did not show this engine"
        return
    for one in fields(reading):
        value = getattr(reading, one.name)
        if one.name not in _SHOWN_ALREADY and value is not None:
            yield f"    {one.name:28} {_number(value)}"
    silent = [f.name for f in fields(reading) if getattr(reading, f.name) is None]
    if silent:
        yield f"    the page does not say: {', '.join(silent)}"
    yield from (f"    ! {problem.text}" for problem in reading.problems)


def _owners(audit: Audit | None) -> Iterator[str]:
    """Yield a bar for each owner of blocks, as the audit inside the engine counted them."""
    if audit is None:
        return
    yield f"  Inside the engine (process {audit.pid})"
    if not audit.supported:
        yield f"    nothing is counted: {audit.reason}"
    owners = [(owner, blocks) for owner, blocks in blocks_by_owner(audit) if blocks]
    pool = sum(blocks for _, blocks in owners)
    for owner, blocks in owners:
        share = blocks / pool
        yield f"    {owner:18} {blocks:>10,}  {share:6.1%}  {'#' * round(40 * share)}"
    if audit.double_booked_blocks:
        yield f"    ! {audit.double_booked_blocks:,} blocks are free and somebody's at once"
    yield from (f"    {count:,} orphaned after {event}" for event, count in audit.orphaned_after)


def _gpus(engine: EngineStatus, looked: Looked) -> Iterator[str]:
    yield f"  GPUs ({looked.assignment.by})"
    mine = [gpu for gpu in looked.gpus if gpu.uuid in engine.gpu_uuids]
    for gpu in mine:
        yield (
            f"    {gpu.uuid}  used {_mib(gpu.used_bytes)} of {_mib(gpu.total_bytes)}, "
            f"reserved {_mib(gpu.reserved_bytes)}  ({gpu.source})"
        )
    if not mine:
        yield f"    {_why_no_gpu(looked.assignment.problem, len(looked.gpus))}"


def _why_no_gpu(problem: Problem | None, seen: int) -> str:
    if problem is not None:
        return problem.text
    if not seen:
        return "no GPU source sees a GPU here"
    return f"{seen} GPU(s) here, none of them known to be this engine's"


def _judgement(engine: EngineStatus, scrapes: int) -> Iterator[str]:
    judgement = engine.judgement
    yield f"  Indications after {scrapes} scrape(s)"
    for one in judgement.indications:
        mark = "!" if one.alarming else " "
        interval = ""
        if one.low is not None and one.high is not None:
            interval = f" [{_number(one.low)} .. {_number(one.high)}]"
        value = "-" if one.value is None else _number(one.value) + interval
        yield f"   {mark}{one.name:24} {value:>14}  {one.because}"
    if not judgement.indications:
        yield "    none yet: too little history"
    yield f"  Verdict: {judgement.state}  (confidence {judgement.confidence:.2f})"
    yield from (f"    because {reason}" for reason in judgement.because)
    yield from (f"    also {finding.kind}: {finding.because}" for finding in judgement.findings)


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**20:,.0f} MiB"
