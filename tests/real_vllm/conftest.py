"""The tests of this folder need a real vLLM; collected only where it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from server import Server, start, stop

collect_ignore_glob = [] if os.environ.get("KVCACHE_REAL_VLLM") else ["test_*.py"]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a module."""
    server = start(tmp_path_factory.mktemp("vllm"))
    yield server
    stop(server)
