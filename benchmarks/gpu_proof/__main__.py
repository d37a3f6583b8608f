"""Run every step on the GPUs of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu_proof.cost import cost
from benchmarks.gpu_proof.eyes import STEP_SECONDS, Eyes, Proof, picture, until
from benchmarks.gpu_proof.processes import WORKER, engines_on_gpus, life_of_a_process


def inside_a_pid_namespace(proof: Proof) -> None:
    """Ask from a pid namespace of its own, where NVML lists nobody and raises no error."""
    program = (
        "import json; from benchmarks.gpu_proof.eyes import Eyes, picture; eyes = Eyes(); "
        "gpus, host = eyes.host(); eyes.source.close(); "
        "print(json.dumps([host.complete, [picture(gpu) for gpu in gpus]]))"
    )
    command = ["unshare", "-pf", "--mount-proc", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_SECONDS)
    proof.seen["pid_namespace"] = json.loads(done.stdout) if done.stdout else done.stderr[-500:]


def a_child_that_does_not_answer(eyes: Eyes, proof: Proof) -> None:
    """Stop the NVML child, as a hung driver call would, and let it go on."""
    eyes.look()
    child = eyes.source.pids[0]
    os.kill(child, signal.SIGSTOP)
    start = time.monotonic()
    hung = eyes.look()
    wall = time.monotonic() - start
    os.kill(child, signal.SIGCONT)
    back = until(lambda: eyes.look().up)
    proof.seen["hung"] = {"wall_seconds": round(wall, 3), "up": hung.up, "back_after_seconds": back}
    proof.expect("a hung child costs at most its deadline", wall < 2.5 and not hung.up)
    proof.expect("the source comes back", back is not None)


def main() -> int:
    proof, eyes = Proof(), Eyes()
    start = time.perf_counter()
    first = eyes.look()
    proof.seen["first_read_seconds"] = round(time.perf_counter() - start, 3)
    if not first.up or not first.gpus:
        print(json.dumps({"problem": first.problem and first.problem.text}))
        return 1
    proof.seen["gpus"] = [picture(gpu) for gpu in first.gpus]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "worker.py"
        script.write_text(WORKER)
        cost(eyes, proof)
        life_of_a_process(eyes, proof, script)
        engines_on_gpus(eyes, proof, script, {"VLLM::EngineCore": [0]})
        engines_on_gpus(
            eyes, proof, script, {"VLLM::EngineCore_DP0": [0], "VLLM::EngineCore_DP1": [0]}
        )
        if len(first.gpus) > 1:
            engines_on_gpus(eyes, proof, script, {"VLLM::EngineCore": [0, 1]})
            engines_on_gpus(
                eyes, proof, script, {"VLLM::EngineCore_DP0": [1], "VLLM::EngineCore_DP1": [0]}
            )
        inside_a_pid_namespace(proof)
        a_child_that_does_not_answer(eyes, proof)
    eyes.source.close()
    proof.seen["wrong"] = proof.wrong
    print(json.dumps(proof.seen, indent=1))
    return 1 if proof.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
