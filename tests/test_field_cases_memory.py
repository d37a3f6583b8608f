"""Field cases of GPU memory, run as ``analyze --pages`` over a recording with GPU readings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kvcache_exporter.cli import main

GIB = 1 << 30
HOUR = 3600
UUID = "GPU-5a2d1b1c-0000-4000-8000-000000000001"
PAGE = """vllm:num_requests_running{engine="0"} RUNNING
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{engine="0"} USAGE
vllm:generation_tokens_total{engine="0"} TOKENS
vllm:time_to_first_token_seconds_count{engine="0"} TOKENS
vllm:request_prompt_tokens_count{engine="0"} TOKENS
vllm:cache_config_info{engine="0",num_gpu_blocks="8193",block_size="16"} 1.0
"""


def recording(
    path: Path, hours: float, used: Callable[[float], float], dead_from: float = 1e9
) -> Path:
    """A busy engine alone on a GPU; ``used`` gives its bytes from the hours since the start."""
    with path.open("w") as file:
        for i in range(int(hours * HOUR / 30)):
            seconds = i * 30
            alive = seconds < dead_from * HOUR
            busy = 3 + (i * 7) % 11
            body = PAGE.replace("RUNNING", str(busy)).replace("USAGE", repr(40 * busy / 8192))
            gpu = {"uuid": UUID, "index": 0, "total_bytes": 140 * GIB, "reserved_bytes": 0}
            size = int(used(seconds / HOUR))
            gpu |= {"used_bytes": size, "free_bytes": 140 * GIB - size}
            gpu["processes"] = [{"pid": 77, "used_bytes": size}] if alive else []
            body = body.replace("TOKENS", str(i * 100))
            line: dict[str, Any] = {"time": 1.79e9 + seconds, "target": "a"}
            line |= {"body": body if alive else None, "gpus": [gpu]}
            file.write(json.dumps(line) + "\n")
    return path


def findings(path: Path) -> tuple[list[str], list[str]]:
    """Kinds of findings and states of the one engine."""
    result = CliRunner().invoke(main, ["analyze", "--pages", str(path), "--json"])
    (engine,) = json.loads(result.stdout)["engines"]
    kinds = [finding["kind"] for finding in engine["findings"]]
    return kinds, [segment["state"] for segment in engine["timeline"]]


def test_memory_outside_the_pool_that_keeps_growing_is_a_finding(tmp_path: Path) -> None:
    path = recording(tmp_path / "grows.jsonl", 24, lambda h: (105 + 0.1 * h) * GIB)
    kinds, states = findings(path)
    assert kinds == ["outside_pool_growth"]
    assert not {"leak", "leak_suspect"} & set(states)


def test_the_plateau_after_warm_up_is_no_finding(tmp_path: Path) -> None:
    path = recording(tmp_path / "settles.jsonl", 24, lambda h: (105 + min(h, 1) * 2.4) * GIB)
    assert findings(path)[0] == []


def test_memory_held_with_no_process_left_is_held_by_nobody(tmp_path: Path) -> None:
    path = recording(tmp_path / "orphan.jsonl", 3, lambda h: 67 * GIB, dead_from=1)
    kinds, states = findings(path)
    assert kinds == ["unowned_gpu_memory"]
    assert states[-1] == "no_data"
