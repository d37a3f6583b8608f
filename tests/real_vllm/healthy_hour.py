"""A healthy engine that is busy for an hour: nothing may ever be counted as lost.

    nice python tests/real_vllm/healthy_hour.py            # an hour; needs `make real-vllm` once
    python tests/real_vllm/healthy_hour.py --seconds 120 --out short.json

A real vLLM with a small pool, so that requests are preempted, under a load of which clients hang
up at any moment. Every second the audit is asked and its answer written down, next to what the
engine's own thread counts block by block. An ask without an answer keeps evidence of why. Ends
with status 1 when anything was not as it must be. Its steps wait 20 ms each, so that it takes about
half a core.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evidence import evidence, is_below
from healthy_report import read, table
from server import ROOT, Server, start, stop
from steady import Steady

from benchmarks.document import put
from kvcache_exporter.audits.local import read_audits
from kvcache_exporter.model import Audit

OUT = ROOT / "tests" / "data" / "healthy-hour.json"
POOL = ("--num-gpu-blocks-override", "96")
STEP_SECONDS = "0.02"
PROGRESS_SECONDS = 60.0


@dataclass(frozen=True)
class Sample:
    """One answer of the audit, and what does not add up in it."""

    time: float
    age_seconds: float
    orphaned: int
    ghosts: int
    settled: int | None
    unaccounted: int
    running: int
    waiting: int


def sample(told: Audit) -> Sample | None:
    """Read an answer; None before the first count."""
    if told.time is None:
        return None
    owners, requests = dict(told.owners), dict(told.requests)
    orphaned, free = told.orphaned_blocks or 0, told.free_blocks or 0
    settled = told.settled_orphaned_blocks
    return Sample(
        time=told.time,
        age_seconds=told.age_seconds or 0.0,
        orphaned=orphaned,
        ghosts=owners["ghost"],
        settled=None if settled is None else settled + (told.settled_ghost_blocks or 0),
        unaccounted=(told.pool_blocks or 0) - free - sum(owners.values()) - orphaned,
        running=requests.get("running", 0),
        waiting=requests.get("waiting", 0),
    )


def ask(server: Server) -> Audit | str:
    """Return the answer of the server's audit, or why there is none."""
    mine = [one for one in read_audits() if is_below(one.pid, server.process.pid)]
    if not mine:
        return f"no socket; the server's exit status is {server.process.poll()}"
    return mine[0] if mine[0].supported else str(mine[0].reason)


def watch(server: Server, seconds: float, stacks: Path) -> Iterator[Sample | dict[str, Any]]:
    """Yield the answer to each ask, or the evidence of why there was none."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        told = ask(server)
        if isinstance(told, Audit):
            if (seen := sample(told)) is not None:
                yield seen
        else:
            yield {"time": time.time(), "reason": told, **evidence(server.process.pid, stacks)}
        time.sleep(max(0.0, now + 1.0 - time.monotonic()))


def hour(seconds: float, folder: Path, **leak: float) -> dict[str, Any]:
    """Run it and return its result; every answer is in *folder* as it comes.

    With a *leak* (see ``Server.leak``) it is not healthy, and must be found not to be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    engine = folder / "engine.jsonl"
    server = start(folder, *POOL, KVCACHE_WATCH=str(engine), KVCACHE_STEP_SECONDS=STEP_SECONDS)
    load, failed = Steady(server.port), 0
    said, begin = time.monotonic(), time.time()
    server.leak(**leak)
    try:
        with load.running(), (folder / "answers.jsonl").open("w", buffering=1) as file:
            time.sleep(3.0)  # until the first step
            for told in watch(server, seconds, Path(f"{engine}.stacks")):
                line = asdict(told) if isinstance(told, Sample) else told
                failed += line is told
                file.write(json.dumps(line) + "\n")
                if time.monotonic() - said > PROGRESS_SECONDS:
                    said = time.monotonic()
                    last = line.get("reason", line)
                    say(f"{time.time() - begin:.0f} s, {failed} without an answer, {last}")
    finally:
        stop(server)
    return read(folder)


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--keep", type=Path, help="folder for every answer; else a temporary one")
    parser.add_argument("--kept", type=Path, help="folder kept before: tell again what it shows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        told = read(given.kept) if given.kept else hour(given.seconds, folder)
    given.out.write_text(json.dumps(told, indent=1) + "\n")
    sys.stdout.write(table(told))
    if given.out == OUT:
        put("audit.md", "tests/real_vllm/healthy_hour.py", table(told))
    return 1 if told["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
