"""Most tests of this folder need a real vLLM; these are collected only where it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import Server, start, stop

NEED_NO_VLLM = ("test_reports.py",)
if not os.environ.get("KVCACHE_REAL_VLLM"):
    found = Path(__file__).parent.glob("test_*.py")
    collect_ignore = [path.name for path in found if path.name not in NEED_NO_VLLM]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a module."""
    server = start(tmp_path_factory.mktemp("vllm"))
    yield server
    stop(server)
