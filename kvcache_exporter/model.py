"""The frozen values that travel between the stages, and the states an engine can be in.

``None`` always means "it does not say"; it is never a stand-in for 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kvcache_exporter.trace import Trace


class State(StrEnum):
    """What an engine is in, exactly one at a time; tested in the order written here."""

    NO_DATA = "no_data"
    UNTRUSTED = "untrusted"
    STALE = "stale"
    PAUSED = "paused"
    STALLED = "stalled"
    PREEMPTION_STORM = "preemption_storm"
    SATURATED = "saturated"
    HELD_IDLE = "held_idle"
    LEAK_SUSPECT = "leak_suspect"
    LEAK = "leak"
    OK = "ok"
    UNKNOWN = "unknown"


class FindingKind(StrEnum):
    """What can be true beside any state."""

    HIT_RATIO_DRIFT = "hit_ratio_drift"
    WRITE_ONLY_CACHE = "write_only_cache"
    OUTSIDE_POOL_GROWTH = "outside_pool_growth"
    UNOWNED_GPU_MEMORY = "unowned_gpu_memory"
    HOST_MEMORY_GROWTH = "host_memory_growth"
    RESTART = "restart"
    CAPACITY_CHANGE = "capacity_change"


class Role(StrEnum):
    """Part an engine plays in a disaggregated deployment; prefill and decode hold blocks longer."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


class Sample(NamedTuple):
    """One line of an exposition: metric name as printed, labels, value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a target or a source: a stable code for machines, a text for people.

    The text names the cause and ends with what to do next.
    """

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class KvModel:
    """A model's ``config.json`` and how vLLM spreads it, which together give bytes per block."""

    config: str
    """Path of the file."""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """One vLLM metrics endpoint to scrape."""

    name: str
    url: str
    labels: tuple[tuple[str, str], ...] = ()
    role: Role = Role.BOTH
    hold_seconds: float | None = None
    """How long blocks may rightly stay held after a request ended; None = by connector."""
    gpu_uuids: tuple[str, ...] = ()
    """GPUs the operator says belong to this target; empty = find out."""
    auth: str | None = None
    """Name of the configured credentials, never the credentials."""
    num_gpu_blocks: int | None = None
    """Size of the pool where the page does not tell it, as vLLM logs it."""
    model: KvModel | None = None
    """Tells the bytes of the pool where the page does not."""
    discovered: bool = False
    """Discovery, not the operator, chose the address: it may be neither loopback nor link-local."""
    guessed: bool = False
    """May be no vLLM server at all, so nothing is said of it until it has shown vLLM series."""
    audit_url: str | None = None
    """Where the audit in its first engine listens; the others' ranks are added to the port."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to prove who we are to a target and how to check who it is.

    Names files, never holds a secret: the files are read anew at each scrape.
    """

    bearer_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    """Name to check the server's certificate against, where it is not the URL's host."""
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class Scrape:
    """What came back from one GET of one target: a body, or the reason why there is none."""

    target: str
    time: float
    """Unix seconds on the pipeline's steady clock, taken when the answer was complete."""
    duration_seconds: float
    body: bytes | None
    problem: Problem | None = None
    filtered: bool = False
    """True when the body holds only the names that were asked for."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """What one page says about one engine; counters are lifetime totals as printed.

    Block counts are exact integers recovered from the usage ratio; ``pool_blocks`` is what can
    be used (the null block is not counted).
    """

    engine: str
    model_name: str | None = None
    naming: str = "vllm:"
    running: float | None = None
    waiting: float | None = None
    waiting_deferred: float | None = None
    """Waiting for something other than capacity (remote KV, grammar, ...)."""
    usage_ratio: float | None = None
    pool_blocks: int | None = None
    used_blocks: int | None = None
    block_size_tokens: int | None = None
    pool_tokens: int | None = None
    pool_bytes: int | None = None
    cache_dtype: str | None = None
    prefix_caching: bool | None = None
    gpu_memory_utilization: float | None = None
    """Share of the GPU that vLLM was told to take."""
    sleeping: bool | None = None
    connector: bool = False
    """A KV connector shows on the page, so blocks may rightly outlive their request."""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    finished_prompt_tokens: float | None = None
    finished_generation_tokens: float | None = None
    finished_requests: float | None = None
    first_tokens: float | None = None
    """Requests that got their first token."""
    completions: float | None = None
    """Requests that ended normally (``request_success`` less aborts, or ``finished_requests``)."""
    steps: float | None = None
    """Engine steps that produced output."""
    prefix_hit_tokens: float | None = None
    prefix_query_tokens: float | None = None
    external_hit_tokens: float | None = None
    external_query_tokens: float | None = None
    hit_ratio: float | None = None
    """A hit ratio printed as such (V0, logs); the judge prefers the token counters."""
    preemptions: float | None = None
    transfer_errors: float | None = None
    stored_bytes: float | None = None
    """Bytes written to an external KV store."""
    http_requests: float | None = None
    """Completion requests seen by the API server, whether or not the engine answered."""
    process_start_time_seconds: float | None = None
    """Start of the process, or the oldest ``_created`` of its counters."""
    resident_memory_bytes: float | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetReading:
    """One page as read: its engines, and what is wrong with it."""

    engines: tuple[EngineReading, ...]
    problems: tuple[Problem, ...] = ()
    vllm_version: str | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that a GPU source reports on a GPU."""

    pid: int
    used_bytes: int | None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU or MIG slice as one source sees it; ``problem`` when it could not be read."""

    uuid: str
    source: str
    index: int | None = None
    model: str | None = None
    driver_version: str | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    reserved_bytes: int | None = None
    free_bytes: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """None = the source cannot tell; () = it says nobody."""
    parent_uuid: str | None = None
    """For a MIG slice, the GPU it is cut from."""
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    xid: int | None = None
    """Last XID error code; sticky, so only a change means anything."""
    problem: Problem | None = None
    instance_id: int | None = None
    """MIG GPU instance id: what NVML's and DCGM's view of one slice have in common."""
    pods: tuple[tuple[str, str], ...] = ()
    """(namespace, pod) of everybody the source says uses it; several when it is shared."""
    unowned_bytes: int | None = None
    """Memory that no live engine and no other living process holds."""


@dataclass(frozen=True, slots=True)
class GpuSourceReading:
    """What one GPU source (NVML, a DCGM exporter) answered in a cycle."""

    source: str
    time: float
    up: bool
    gpus: tuple[GpuReading, ...] = ()
    expected: int | None = None
    """How many GPUs this source has reported at its best."""
    problem: Problem | None = None
    seen: int | None = None
    """How many GPUs answered this time (MIG slices not counted)."""
    fingerprint: int | None = None
    """Changes whenever anything the source says about a working GPU changes; None = cannot tell."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit inside an engine process counted: exact, where everything else estimates."""

    pid: int
    engine: str
    """Data-parallel rank as the engine knows it."""
    supported: bool
    reason: str | None = None
    """Why nothing is counted."""
    heard: bool = True
    """False = it did not answer; where it did, it is the engine's insides that it does not know."""
    time: float | None = None
    age_seconds: float | None = None
    """Of the newest sample, by the engine's clock; a hung engine makes no more."""
    pool_blocks: int | None = None
    free_blocks: int | None = None
    cached_blocks: int | None = None
    """Of the free ones, those that still hold a prefix."""
    owners: tuple[tuple[str, int], ...] = ()
    """(owner, blocks); together with free and orphaned blocks they make the pool."""
    requests: tuple[tuple[str, int], ...] = ()
    oldest_seconds: tuple[tuple[str, float], ...] = ()
    """(owner, age of its oldest request)."""
    orphaned_blocks: int | None = None
    double_booked_blocks: int | None = None
    """Free and somebody's at once, as owners and free blocks are more than the pool."""
    settled_orphaned_blocks: int | None = None
    """Orphaned for longer than any free may lag; None while that time is not over."""
    settled_ghost_blocks: int | None = None
    """In the table of a request that no longer exists, for as long."""
    orphaned_after: tuple[tuple[str, int], ...] = ()
    """(event, blocks): which kind of end came before the loss."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One engine at one moment: the reading, or None for a failed scrape, and its GPUs."""

    time: float
    target: str
    engine: str
    reading: EngineReading | None
    gpus: tuple[GpuReading, ...] = ()
    problems: tuple[Problem, ...] = ()
    audit: Audit | None = None


@dataclass(frozen=True, slots=True)
class Indication:
    """What one indicator says: a value, whether it alarms, and why, in a sentence with numbers."""

    name: str
    value: float | None
    alarming: bool
    because: str
    low: float | None = None
    high: float | None = None
    details: Mapping[str, float | None] = field(default_factory=dict)
    """Numbers for the judgement, under the names of its fields."""
    state: State | None = None
    """The state this speaks for while it alarms."""
    finding: str | None = None
    """The finding this stands for while it alarms."""
    problem: str | None = None
    """The code under which it counts as a problem of the target while it alarms."""
    exact: bool = False
    """Counted, not inferred: its numbers hold against those of all others."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something true beside any state."""

    kind: str
    start: float
    because: str
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one engine at one moment, with everything that speaks for it."""

    state: State
    since: float
    confidence: float
    because: tuple[str, ...]
    leak_active: bool = False
    indications: tuple[Indication, ...] = ()
    findings: tuple[Finding, ...] = ()
    orphaned_blocks: int | None = None
    orphaned_blocks_low: int | None = None
    idle_floor_blocks: int | None = None
    idle_floor_time: float | None = None
    free_slope_per_second: float | None = None
    """Load-independent slope of free blocks: negative while leaking. 95 % interval low..high."""
    free_slope_low_per_second: float | None = None
    free_slope_high_per_second: float | None = None
    exhaustion_time: float | None = None
    exhaustion_earliest_time: float | None = None
    exhaustion_latest_time: float | None = None
    hit_ratio: float | None = None
    """From token deltas over ``hit_ratio_window_seconds``."""
    hit_ratio_window_seconds: float | None = None
    hit_ratio_baseline: float | None = None
    hit_ratio_drift: bool | None = None
    preemptions_per_completion: float | None = None
    completions_per_second: float | None = None
    blocks_lost_per_event: tuple[tuple[str, float], ...] = ()
    """(event, blocks) of the best correlate only; empty while there is none."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine in a snapshot."""

    target: str
    engine: str
    labels: tuple[tuple[str, str], ...]
    reading: EngineReading | None
    judgement: Judgement
    gpu_uuids: tuple[str, ...] = ()
    vllm_version: str | None = None
    trace: Trace = field(default_factory=Trace)
    hold_seconds: float | None = None
    """How long blocks may rightly outlive their request here, as the judge allows."""
    gpu_bytes: tuple[tuple[str, int], ...] = ()
    """(uuid, bytes) that its own processes hold, where the process tree tells."""
    audit: Audit | None = None


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target in a snapshot."""

    target: Target
    up: bool
    last_success_time: float | None
    duration_seconds: float | None
    problems: tuple[Problem, ...] = ()
    failures: tuple[tuple[str, int], ...] = ()
    """(reason, scrapes that failed for it) since the exporter started."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one cycle found out; published whole and never changed afterwards."""

    time: float
    cycle_duration_seconds: float
    targets: tuple[TargetStatus, ...] = ()
    engines: tuple[EngineStatus, ...] = ()
    gpu_sources: tuple[GpuSourceReading, ...] = ()
    gpus: tuple[GpuReading, ...] = ()
    """Each GPU once, as the source that is the truth for it sees it."""
    problems: tuple[Problem, ...] = ()
    """What is wrong beside any target: discovery, GPU sources, state file."""
    gpu_outside_pool_bytes: tuple[tuple[str, float], ...] = ()
    gpu_unowned_bytes: tuple[tuple[str, float], ...] = ()
    config_reload_ok: bool = True
