"""The process that talks to NVML: one JSON line on stdout for each line on stdin.

It is run as a file of its own, with nothing but the standard library and ``pynvml``, because an
NVML call that hangs cannot be cancelled: the exporter leaves such a process alone and goes on. It
reports plain facts and error codes; words are put to them by its parent. It ends when its stdin
closes, also in the middle of a call, so that it never outlives an exporter that was killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Set
from queue import SimpleQueue
from typing import Any

Facts = dict[str, Any]

NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 3, 6, 7, 13
INVALID_ARGUMENT, ARGUMENT_VERSION_MISMATCH = 2, 25
NO_SUCH_CALL = {INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH}
"""What an older driver, or a part without the feature, answers: no fault."""

CANNOT_SAY = {None, 0, 0xFFFFFFFFFFFFFFFF}
"""Bytes of a process: a context never holds 0, which some drivers answer in a pid namespace; the
last is NVML_VALUE_NOT_AVAILABLE, which not all bindings turn into None."""
GARBAGE_PIDS = {0, 0xFFFFFFFF}


class Device:
    """One GPU or MIG slice; collects the errors of its calls instead of stopping at the first."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.errors: list[Facts] = []

    def ask(self, call: str, *arguments: Any, harmless: Set[int] = frozenset()) -> Any:
        """Return the call's answer, or None after noting its error."""
        try:
            return getattr(self.nvml, call)(self.handle, *arguments)
        except Exception as error:
            noted = describe(call, error)
            if noted["code"] not in harmless:
                self.errors.append(noted)
            return None

    def text(self, call: str, harmless: Set[int] = frozenset()) -> str | None:
        """Ask for a string; bindings differ in whether they return str or bytes."""
        answer = self.ask(call, harmless=harmless)
        return answer.decode() if isinstance(answer, bytes) else answer

    def memory(self) -> Facts:
        """Bytes by NVML's names; ``reserved`` only where the driver tells it apart from used."""
        answer, known = None, len(self.errors)
        if (version := getattr(self.nvml, "nvmlMemory_v2", None)) is not None:
            answer = self.ask("nvmlDeviceGetMemoryInfo", version, harmless=NO_SUCH_CALL)
        reserved = getattr(answer, "reserved", None)
        if answer is None and len(self.errors) == known:
            answer = self.ask("nvmlDeviceGetMemoryInfo")
        if answer is None or not answer.total:
            return {}
        sizes = {"total": answer.total, "used": answer.used, "free": answer.free}
        return sizes | {"reserved": reserved}

    def processes(self) -> list[list[int | None]] | None:
        """[pid, bytes or None] of compute and MPS clients; None where NVML cannot list them."""
        compute = self._processes("Compute")
        if compute is None:
            return None
        found: dict[int, int | None] = {}
        for process in [*compute, *(self._processes("MPSCompute") or ())]:
            if process.pid not in GARBAGE_PIDS:
                size = process.usedGpuMemory
                size = None if size in CANNOT_SAY else size
                found[process.pid] = max((found.get(process.pid), size), key=lambda n: n or 0)
        return [[pid, size] for pid, size in sorted(found.items())]

    def _processes(self, kind: str) -> Any:
        call, known = f"nvmlDeviceGet{kind}RunningProcesses", len(self.errors)
        harmless = NO_SUCH_CALL | {INSUFFICIENT_SIZE}
        for attempt in (call, call, f"{call}_v2"):  # more may start between sizing and asking
            answer = self.ask(attempt, harmless=harmless)
            if answer is not None or len(self.errors) > known:
                return answer
        return None

    def slices(self) -> Iterator[Device]:
        """Yield the MIG devices cut from this GPU; indices may have holes."""
        mode = self.ask("nvmlDeviceGetMigMode", harmless=NO_SUCH_CALL)
        if not mode or not mode[0]:
            return
        count = self.ask("nvmlDeviceGetMaxMigDeviceCount", harmless=NO_SUCH_CALL) or 0
        for index in range(count):
            hole = NO_SUCH_CALL | {NOT_FOUND}
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index, harmless=hole)
            if handle is not None:
                yield Device(self.nvml, handle)


def describe(call: str, error: Exception) -> Facts:
    """Turn an exception into facts; ``code`` is None when it did not come from NVML."""
    code = getattr(error, "value", None)
    missing = isinstance(error, (AttributeError, TypeError))  # bindings older than the call
    text = str(error) or type(error).__name__
    return {"call": call, "code": FUNCTION_NOT_FOUND if missing else code, "text": text}


def facts(device: Device, index: int) -> Facts:
    """Everything about one device, with the errors met on the way."""
    return {
        "index": index,
        "uuid": device.text("nvmlDeviceGetUUID"),
        "name": device.text("nvmlDeviceGetName", harmless=NO_SUCH_CALL),
        "memory": device.memory(),
        "processes": device.processes(),
        "errors": device.errors,
    }


def read_devices(nvml: Any, uuids: dict[int, str]) -> list[Facts]:
    """Read every GPU and its slices; *uuids* remembers names a lost GPU no longer tells."""
    devices: list[Facts] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            device = Device(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        except Exception as error:
            errors = [describe("nvmlDeviceGetHandleByIndex", error)]
            devices.append({"index": index, "uuid": uuids.get(index), "errors": errors})
            continue
        gpu = facts(device, index)
        if gpu["uuid"]:
            uuids[index] = gpu["uuid"]
        gpu["uuid"] = uuids.get(index)
        devices.append(gpu)
        for part in device.slices():
            instance = part.ask("nvmlDeviceGetGpuInstanceId", harmless=NO_SUCH_CALL)
            devices.append(facts(part, index) | {"parent": gpu["uuid"], "instance": instance})
    return devices


def answers(requests: Iterator[str]) -> Iterator[Facts]:
    """Answer each request; NVML is initialised by the first, so that this too has a deadline."""
    nvml: Any = None
    uuids: dict[int, str] = {}
    for _ in requests:
        call = "import pynvml"
        try:
            if nvml is None:
                import pynvml

                call = "nvmlInit"
                pynvml.nvmlInit()
                nvml = pynvml
            call = "nvmlDeviceGetCount"
            devices = read_devices(nvml, uuids)
            yield {"driver_version": driver_version(nvml), "devices": devices}
        except Exception as error:
            yield {"error": describe(call, error)}


def driver_version(nvml: Any) -> str | None:
    """Ask for the driver's version; None where it will not say."""
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except Exception:
        return None
    return version.decode() if isinstance(version, bytes) else version


def lines_until_closed() -> Iterator[str]:
    """Yield stdin's lines; end the process at its end, even while a call to NVML hangs."""
    lines: SimpleQueue[str] = SimpleQueue()

    def pump() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=pump, daemon=True).start()
    while True:
        yield lines.get()


if __name__ == "__main__":
    for answer in answers(lines_until_closed()):
        print(json.dumps(answer), flush=True)  # noqa: T201
