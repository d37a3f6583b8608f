"""Findings about GPU memory, through ``analyze`` on made-up recordings."""

import json
from pathlib import Path

import pytest

from kvcache_exporter.analyze import pages
from kvcache_exporter.analyze.replay import replay

DATA = Path(__file__).parents[1] / "data"
PAGE = (DATA / "pages" / "vllm-0.25.1-h200-idle.prom").read_text()
GIB = 1 << 30
TOTAL = 80 * GIB
DRIVER_BYTES = 9_000_000
"""What the driver keeps for itself beside its processes."""


def findings(path, rows):
    """Findings over *rows* of (page, used bytes, processes), one a minute."""
    with path.open("w") as file:
        for minute, (body, used, processes) in enumerate(rows):
            gpu = {"uuid": "GPU-a", "total_bytes": TOTAL, "used_bytes": int(used)}
            gpu |= {"processes": [{"pid": 7, "used_bytes": int(n)} for n in processes]}
            line = {"time": 1.79e9 + 60.0 * minute, "target": "t", "body": body, "gpus": [gpu]}
            file.write(json.dumps(line) + "\n")
    (engine,) = replay(pages.frames(path)).engines
    return {finding.kind: finding.because for finding in engine.findings}


def used(shape, hours):
    """Rows of a live engine whose memory follows *shape*, in GiB by hours."""
    sizes = [shape(minute / 60) * GIB for minute in range(int(60 * hours))]
    return [(PAGE, size, [size - DRIVER_BYTES]) for size in sizes]


def test_a_worker_that_grows_under_load_is_growth_outside_the_pool(tmp_path):
    rows = used(lambda hours: 60 + 0.6 * hours, 4)
    assert "not the KV cache" in findings(tmp_path / "r.jsonl", rows)["outside_pool_growth"]


@pytest.mark.parametrize("gib", [0.7, 4.0])
def test_a_warm_up_that_settles_is_no_finding(tmp_path, gib):
    rows = used(lambda hours: 60 + gib * min(1.0, hours / 0.3), 6)
    assert findings(tmp_path / "r.jsonl", rows) == {}


def test_memory_that_outlives_its_process_is_unowned(tmp_path):
    rows = [*used(lambda hours: 67, 1), *[(None, 67 * GIB, [])] * 30]
    text = findings(tmp_path / "r.jsonl", rows)["unowned_gpu_memory"]
    assert "68608 MiB of GPU-a" in text


def test_a_recorder_that_saw_no_process_makes_no_memory_unowned(tmp_path):
    rows = [(PAGE, 67 * GIB, [])] * 60
    assert findings(tmp_path / "r.jsonl", rows) == {}
