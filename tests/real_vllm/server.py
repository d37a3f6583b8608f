"""A real vLLM server on this machine's CPU: started, told to leak, stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
VENV = ROOT / ".cache" / "vllm"
MODEL = ROOT / ".cache" / "tiny-model"
START_SECONDS = 240.0
BLOCKS = 768
BLOCK_SIZE = 32

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Server:
    """A running vLLM: where it answers, where it logs, and the leak it is told to have."""

    port: int
    log: Path
    control: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def leak(self, **chances: float) -> None:
        """Set the probability of losing blocks at a ``finish``, ``abort`` or ``preemption``."""
        self.control.write_text(json.dumps(chances))
        time.sleep(1.5)  # the injector reads it once a second

    def truths(self) -> list[dict[str, float]]:
        """What was true from when on, by the injector's own count."""
        path = Path(f"{self.control}.truth")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def truth(self) -> dict[str, float]:
        """What is true now."""
        return self.truths()[-1]


def start(folder: Path, *options: str, **environment: str) -> Server:
    """Start vLLM and wait until it serves."""
    if not (MODEL / "tokenizer.json").exists():
        subprocess.run([VENV / "bin/python", HERE / "tiny_model.py", MODEL], check=True)
    port, log, control = free_port(), folder / "vllm.log", folder / "leak.json"
    control.write_text("{}")
    command = [
        VENV / "bin/vllm", "serve", MODEL, "--served-model-name", "tiny",
        "--load-format", "dummy", "--host", "127.0.0.1", "--port", port,
        "--max-model-len", 2048, "--max-num-seqs", 16, "--enforce-eager",
        "--block-size", BLOCK_SIZE, "--num-gpu-blocks-override", BLOCKS, *options,
    ]  # fmt: skip
    given = ENVIRONMENT | {"KVCACHE_LEAK_CONTROL": str(control)} | environment
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)), stdout=output, stderr=output, env=os.environ | given,
            start_new_session=True,
        )  # fmt: skip
    server = Server(port, log, control, process)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{server.url}/health", timeout=2):
                return server
        except (URLError, OSError):
            time.sleep(1)
    stop(server)
    raise RuntimeError(f"vLLM did not start:\n{log.read_text()[-3000:]}")


def stop(server: Server) -> None:
    """End the server and its engine processes."""
    os.killpg(server.process.pid, signal.SIGTERM)
    try:
        server.process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.process.pid, signal.SIGKILL)
