"""GPUs through the whole cycle: real source, fake driver, the recorded process trees and pages."""

import asyncio
import shutil
from pathlib import Path

from nvml_scenario import gpu
from proc_tree import build, memory_by_gpu

from kvcache_exporter.config import Config
from kvcache_exporter.discovery import Found
from kvcache_exporter.gpus.dcgm import DcgmSource
from kvcache_exporter.gpus.nvml import NvmlSource
from kvcache_exporter.hosts.gpu_watch import HostGpus
from kvcache_exporter.model import Problem, Scrape, Target
from kvcache_exporter.pipeline import Pipeline
from kvcache_exporter.world import World

DATA = Path(__file__).parents[1] / "data"
PAGE = (DATA / "pages" / "vllm-0.32.0-cpu-dp2-busy.prom").read_bytes()
DCGM = (DATA / "gpus" / "dcgm-exporter.prom").read_bytes()
REFUSED = Problem("refused", "nothing listens")
OVERHEAD = 9_240_576
"""What an H200's driver counted as used beyond its one process."""


class Site:
    """One target, a clock of our own and whatever page it shows."""

    def __init__(self, sources, proc=Path("/nowhere"), labels=()):
        self.target = Target("t", "http://127.0.0.1:8000/metrics", labels=labels)
        self.page, self.now = PAGE, 1000.0
        self.gpus = HostGpus(sources, proc)
        world = World(self.fetch, self.version, self.gpus, lambda: self.now)
        self.pipeline = Pipeline(Config(), [self], world)

    def find(self, now):
        return Found((self.target,))

    async def fetch(self, target):
        problem = None if self.page else REFUSED
        return Scrape(target.name, self.now, 0.01, self.page, problem)

    async def version(self, target):
        return None

    def cycle(self, seconds=10.0):
        self.now += seconds
        return asyncio.run(self.pipeline.cycle())


def recorded(title):
    return [
        {**gpu("x", sum(held.values()) + OVERHEAD, compute=list(held.items())), "uuid": uuid}
        for uuid, held in memory_by_gpu(title).items()
    ]


def names_of(snapshot):
    return {engine.engine: engine.gpu_uuids for engine in snapshot.engines}


def findings(snapshot):
    return {e.engine: {f.kind for f in e.judgement.findings} for e in snapshot.engines}


def test_a_killed_server_leaves_its_gpus_to_no_live_engine(driver, source, tmp_path):
    first, second = memory_by_gpu("data parallel")
    proc = tmp_path / "proc"
    driver.says(*recorded("data parallel"))
    build(proc, "data parallel")
    site = Site([source], proc)
    alive = site.cycle()
    assert names_of(alive) == {"0": (first,), "1": (second,)}
    assert [dict(engine.gpu_bytes) for engine in alive.engines] == [
        {first: 134_811_222_016},
        {second: 134_872_039_424},
    ]
    assert dict(alive.gpu_unowned_bytes) == {first: OVERHEAD, second: OVERHEAD}
    assert findings(alive) == {"0": set(), "1": set()}

    site.page = None
    shutil.rmtree(proc)
    build(proc, "after SIGKILL")
    dead = site.cycle()
    assert [engine.gpu_bytes for engine in dead.engines] == [(), ()]
    assert names_of(dead) == {"0": (first,), "1": (second,)}
    assert all(size > 134_000_000_000 for _, size in dead.gpu_unowned_bytes)
    assert findings(dead) == {"0": {"unowned_gpu_memory"}, "1": {"unowned_gpu_memory"}}


def test_a_lost_gpu_of_a_running_engine_is_a_problem_and_no_end(driver, source, tmp_path):
    driver.says(*recorded("tensor parallel"))
    build(tmp_path / "proc", "tensor parallel")
    site = Site([source], tmp_path / "proc")
    site.cycle()
    healthy, lost = recorded("tensor parallel")
    driver.says(healthy, {**lost, "errors": {"*": 15}})
    snapshot = site.cycle()
    assert snapshot.targets[0].up
    assert "gpu_lost" in {problem.code for problem in snapshot.problems}
    (nvml,) = snapshot.gpu_sources
    assert (nvml.up, nvml.expected, nvml.seen) == (True, 2, 1)


def test_without_a_driver_the_blocks_are_judged_all_the_same(driver, source):
    driver.says(init={"error": 12})
    snapshot = Site([source]).cycle()
    assert all(engine.reading.used_blocks is not None for engine in snapshot.engines)
    assert [problem.code for problem in snapshot.problems] == ["library_not_found"]
    assert (snapshot.gpus, snapshot.gpu_unowned_bytes) == ((), ())


def test_a_hung_driver_costs_its_deadline_and_nothing_else(driver):
    hanging = NvmlSource(deadline_seconds=0.2)
    driver.says(gpu("a", hangs=["nvmlDeviceGetUUID"]))
    site = Site([hanging])
    for _ in range(3):
        snapshot = site.cycle()
        assert snapshot.targets[0].up
        assert [problem.code for problem in snapshot.problems] == ["nvml_hung"]
    site.gpus.close()


def working_pages():
    """Pages on which tokens move, as text that differs in one counter."""
    total = b'vllm:generation_tokens_total{engine="0",model_name="tiny"} '
    assert total in PAGE
    for number in range(1, 1000):
        yield PAGE.replace(total, total + b"%d" % number, 1)


def test_a_frozen_dcgm_page_is_left_out_while_the_engines_work():
    labels = (("namespace", "serving"), ("pod", "llama-0"))
    site = Site([DcgmSource(lambda _: DCGM, "http://d:9400/metrics")], labels=labels)
    pages = working_pages()
    snapshots = []
    for _ in range(12):
        site.page = next(pages)
        snapshots.append(site.cycle(30.0))
    assert snapshots[0].gpus[0].used_bytes == 128_403 << 20
    assert snapshots[0].gpu_sources[0].up
    last = snapshots[-1]
    assert (last.gpu_sources[0].up, last.gpus[0].used_bytes) == (False, None)
    assert "dcgm_frozen" in {problem.code for problem in last.problems}


def test_a_new_xid_is_told_once_it_appears():
    pages = [DCGM, DCGM.replace(b'"No Error"} 0', b'"No Error"} 79')]
    site = Site([DcgmSource(lambda _: pages.pop(0), "http://d:9400/metrics")])
    assert [problem.code for problem in site.cycle().problems] == []
    assert [problem.code for problem in site.cycle().problems] == ["gpu_xid"]
