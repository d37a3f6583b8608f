"""A fake driver and a source that asks it."""

import pytest
from nvml_scenario import Driver
from proc_tree import API, ProcTree

from kvcache_exporter.gpus.nvml import NvmlSource


@pytest.fixture
def driver(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "nvml.json")
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver


@pytest.fixture
def source():
    """NVML asked with all the patience of a test."""
    source = NvmlSource(deadline_seconds=20.0)
    yield source
    source.close()


@pytest.fixture
def tree(tmp_path):
    """One API server at port 8000 with one engine core and one worker, pids 10, 11, 12."""
    tree = ProcTree(tmp_path)
    tree.listen("0.0.0.0", 8000, 500)
    tree.process(10, 1, API, [499, 500])
    tree.process(11, 10, "VLLM::EngineCore")
    tree.process(12, 11, "VLLM::Worker_TP0")
    return tree
