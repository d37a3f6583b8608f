"""What real H200s showed: flat memory above a leak, and each engine on its own GPUs."""

import json
from pathlib import Path

import pytest
from proc_tree import ProcTree, build

from kvcache_exporter import recording
from kvcache_exporter.analyze import pages
from kvcache_exporter.analyze.replay import replay
from kvcache_exporter.follow import Follower
from kvcache_exporter.hosts.gpu_view import gpu_pids, unowned_bytes, with_unowned
from kvcache_exporter.hosts.merge import assign
from kvcache_exporter.hosts.processes import read_host
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import GpuProcess, GpuReading, Target

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
PROOF = Path(__file__).parents[1] / "data" / "h200x2-gpu-proof.json"
"""Printed by ``python -m benchmarks.gpu_proof`` on a machine with two H200s; UUIDs replaced."""
URL = "http://127.0.0.1:8000/metrics"
FIRST, SECOND = (f"GPU-00000000-0000-0000-0000-00000000000{letter}" for letter in "ab")


def entries(name):
    return list(recording.read(RECORDINGS / f"{name}.jsonl.gz"))


@pytest.mark.parametrize("name", ["h200-leak-abort", "h200x2-dp2-leak-abort", "h200x2-tp2-healthy"])
def test_the_drivers_memory_is_flat_within_one_percent(name):
    rows = entries(name)
    for first, last in zip(rows[0].gpus, rows[-1].gpus, strict=True):
        assert first.used_bytes <= last.used_bytes < 1.01 * first.used_bytes


@pytest.mark.parametrize("name", ["h200-leak-abort", "h200x2-tp2-healthy"])
def test_growth_outside_the_pool_and_unowned_memory_are_not_called(name):
    report = replay(pages.frames(RECORDINGS / f"{name}.jsonl.gz"))
    kinds = {finding.kind for engine in report.engines for finding in engine.findings}
    assert not kinds & {"outside_pool_growth", "unowned_gpu_memory"}


def last_cycle(tmp_path, name, title):
    """The last page and GPUs of a recording beside the process tree of that day."""
    row = entries(name)[-1]
    target = Target("t", URL)
    host = read_host(build(tmp_path, title).root, gpu_pids(row.gpus), {"t": URL})
    gpus = with_unowned(row.gpus, host)
    follower = Follower(target, JudgeSettings())
    reading = follower.read(row.scrape)
    found = assign(target, [one.engine for one in reading.engines], gpus, host)
    _, engines = follower.judge(row.scrape, reading, found)
    return engines, gpus


def test_tensor_parallel_is_one_engine_on_both_gpus(tmp_path):
    engines, gpus = last_cycle(tmp_path, "h200x2-tp2-healthy", "tensor parallel")
    assert {one.engine: one.gpu_uuids for one in engines} == {"0": (FIRST, SECOND)}
    assert all(gpu.unowned_bytes < 16 << 20 for gpu in gpus)


def test_data_parallel_is_an_engine_on_each_gpu(tmp_path):
    engines, gpus = last_cycle(tmp_path, "h200x2-dp2-leak-abort", "data parallel")
    assert {one.engine: one.gpu_uuids for one in engines} == {"0": (FIRST,), "1": (SECOND,)}
    assert all(gpu.unowned_bytes < 16 << 20 for gpu in gpus)


def test_idle_blocks_of_each_engine_stand_beside_its_own_gpu(tmp_path):
    """The injector counted 1,059 and 438 blocks that nobody owned at the end."""
    engines, _ = last_cycle(tmp_path, "h200x2-dp2-leak-abort", "data parallel")
    used = {one.gpu_uuids: one.reading.used_blocks for one in engines}
    assert used == {(FIRST,): 1059, (SECOND,): 438}


def test_memory_of_a_killed_process_that_a_forked_child_keeps_is_held_by_nobody(tmp_path):
    """Seen on an H200: NVML names the dead parent, and never the child that keeps its memory."""
    seen = json.loads(PROOF.read_text())["life_of_a_process"]["parent_killed_child_lives"]
    processes = tuple(GpuProcess(*each) for each in seen["processes"])
    gpu = GpuReading(seen["uuid"], "nvml", used_bytes=seen["used"], processes=processes)
    host = read_host(ProcTree(tmp_path).root, gpu_pids([gpu]), {})
    assert unowned_bytes(gpu, host) == seen["used"] > 4 << 30
