"""Throughput of a real vLLM with and without the audit, in pairs of turns.

    python tests/real_vllm/throughput.py              # ten minutes; needs `make real-vllm` once
    python tests/real_vllm/throughput.py --pairs 8 --out /dev/null

Two servers, one with KVCACHE_AUDIT=0, take turns; who begins changes from pair to pair. Once as
vLLM is, for the wall time; once with a worker and an engine that sleep while they wait for each
other rather than spin, so that CPU time is work. Of the pairs' ratios the median is told, and the
interval that holds it with 95 % certainty whatever the noise looks like.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from evidence import engine_pid
from load import Load
from server import ROOT, Server, start, stop
from throughput_report import compared, table

from benchmarks.document import put
from benchmarks.machine import machine

OUT = ROOT / "tests" / "data" / "audit-throughput.json"
REQUESTS, TOKENS, CLIENTS = 40, 60, 8
"""A turn is short, so that both of a pair meet the same machine."""
NO_WAIT = "0.000001"
"""Seconds before each step: next to none, and still makes who waits sleep."""


@contextmanager
def servers(folder: Path, **environment: str) -> Iterator[tuple[Server, Server]]:
    """One with the audit and one without, both warm."""
    with ExitStack() as stack:
        both = []
        for name, audit in (("with", "1"), ("without", "0")):
            place = folder / name
            place.mkdir(parents=True)
            watch = {"KVCACHE_WATCH": str(place / "engine.jsonl")} if environment else {}
            server = start(place, KVCACHE_AUDIT=audit, **watch, **environment)
            stack.callback(stop, server)
            turn(server, 0)
            both.append(server)
        yield both[0], both[1]


def turn(server: Server, seed: int) -> tuple[float, float]:
    """Send a fixed number of requests; return seconds it took, and CPU seconds of the engine."""
    pid = engine_pid(server.process.pid)
    assert pid is not None
    cpu, begin = cpu_seconds(pid), time.perf_counter()
    Load(server.port, REQUESTS, CLIENTS, max_tokens=TOKENS, seed=seed).run()
    return time.perf_counter() - begin, cpu_seconds(pid) - cpu


def cpu_seconds(pid: int) -> float:
    """Time that a process has run, to the nanosecond; ``stat`` has hundredths of a second."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def turns(folder: Path, pairs: int, **environment: str) -> list[dict[str, tuple[float, float]]]:
    """Return (wall, CPU) seconds with and without, for each pair."""
    done = []
    with servers(folder, **environment) as (audited, without):
        for pair in range(pairs):
            order = [("with", audited), ("without", without)][:: -1 if pair % 2 else 1]
            done.append({name: turn(server, pair + 1) for name, server in order})
            sys.stderr.write(f"pair {pair + 1}: {done[-1]}\n")
    return done


def measure(pairs: int, folder: Path) -> dict[str, Any]:
    """Measure both figures, each on servers of its own."""
    wall = turns(folder / "as it is", pairs)
    cpu = turns(folder / "asleep", pairs, KVCACHE_STEP_SECONDS=NO_WAIT)
    tokens = REQUESTS * TOKENS
    return {
        "tokens_a_turn": tokens,
        "machine": machine(),
        "tokens_per_second": compared(
            [{name: tokens / each[0] for name, each in pair.items()} for pair in wall]
        ),
        "engine_cpu_microseconds_per_token": compared(
            [{name: each[1] / tokens * 1e6 for name, each in pair.items()} for pair in cpu]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=80)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--kept", type=Path, help="a result kept before: tell it again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = json.loads(given.kept.read_text()) if given.kept else None
        told = kept or measure(given.pairs, Path(folder))
    given.out.write_text(json.dumps(told, indent=1) + "\n")
    sys.stdout.write(table(told))
    if given.out == OUT:
        put("audit.md", "tests/real_vllm/throughput.py", table(told))


if __name__ == "__main__":
    main()
