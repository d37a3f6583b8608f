"""What can be seen of a process whose audit did not answer, so that the cause is known later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

STATUS = ("State", "Threads", "VmRSS", "SigBlk", "FDSize")


def engine_pid(server_pid: int) -> int | None:
    """Find the engine process of a server by the name that vLLM gives it."""
    for status in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # it has just ended
            if status.read_text().startswith("VLLM::EngineCor") and is_below(
                int(status.parent.name), server_pid
            ):
                return int(status.parent.name)
    return None


def is_below(pid: int, ancestor: int) -> bool:
    """Whether one process descends from another, or is it."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            return False
    return False


def evidence(server_pid: int, stacks: Path) -> dict[str, Any]:
    """Say what state the server and its engine are in; the engine adds its *stacks* on request."""
    pid = engine_pid(server_pid)
    found: dict[str, Any] = {"server": _process(server_pid), "engine_pid": pid}
    if pid is not None:
        before = stacks.stat().st_size if stacks.exists() else 0
        with suppress(OSError):
            os.kill(pid, signal.SIGUSR2)
            time.sleep(0.5)
        found |= {"engine": _process(pid), "stacks": stacks.read_text()[before:][:20_000]}
    unix = Path("/proc/net/unix").read_text().splitlines()
    found["sockets"] = [line for line in unix if "kvcache-audit" in line]
    found["load"] = Path("/proc/loadavg").read_text().strip()
    return found


def _process(pid: int) -> dict[str, Any]:
    proc = Path(f"/proc/{pid}")
    try:
        lines = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        tasks = {task.name: _thread(task) for task in (proc / "task").iterdir()}
        files = len(list((proc / "fd").iterdir()))
    except OSError as error:
        return {"gone": str(error)}
    return {key: lines.get(key, "").strip() for key in STATUS} | {"files": files, "threads": tasks}


def _thread(task: Path) -> str:
    with suppress(OSError):
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        return f"{(task / 'comm').read_text().strip()} {state} {(task / 'wchan').read_text()}"
    return "gone"
