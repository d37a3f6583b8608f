"""A driver that answers from a JSON file, ``$FAKE_NVML``, read anew at each enumeration.

{"init": {...}, "v1_only": true, "bytes": true, "driver_version": "...", "devices": [
    {"uuid": "GPU-a", "name": "...", "total": 1, "used": 1, "reserved": 1, "free": 1,
     "compute": [[pid, bytes or null]], "mps": [...], "mig": [null or a device, ...],
     "errors": {"call or *": code}, "hangs": ["call"]}]}

``init`` is {"error": code} or {"hang": true}. Only the bindings' names that the child calls exist.
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

nvmlMemory_v2 = 0x02000028  # noqa: N816 - the bindings' name
_scenario: dict = {}


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


def _load():
    _scenario.clear()
    _scenario.update(json.loads(Path(os.environ["FAKE_NVML"]).read_text()))


def _act(device, call):
    if call in device.get("hangs", ()):
        time.sleep(3600)
    errors = device.get("errors", {})
    code = errors.get(call, errors.get("*"))
    if code is not None:
        raise NVMLError(code)


def _string(text):
    return text.encode() if _scenario.get("bytes") else text


def nvmlInit():  # noqa: N802
    _load()
    init = _scenario.get("init", {})
    if init.get("hang"):
        time.sleep(3600)
    if "error" in init:
        raise NVMLError(init["error"])


def nvmlSystemGetDriverVersion():  # noqa: N802
    return _string(_scenario.get("driver_version", "580.95.05"))


def nvmlDeviceGetCount():  # noqa: N802
    _load()
    _act(_scenario, "nvmlDeviceGetCount")
    return len(_scenario["devices"])


def nvmlDeviceGetHandleByIndex(index):  # noqa: N802
    device = _scenario["devices"][index]
    _act(
        {"errors": {k: v for k, v in device.get("errors", {}).items() if k != "*"}},
        "nvmlDeviceGetHandleByIndex",
    )
    return device


def nvmlDeviceGetUUID(device):  # noqa: N802
    _act(device, "nvmlDeviceGetUUID")
    return _string(device["uuid"])


def nvmlDeviceGetName(device):  # noqa: N802
    _act(device, "nvmlDeviceGetName")
    return _string(device.get("name", "NVIDIA H200"))


def nvmlDeviceGetMemoryInfo(device, version=None):  # noqa: N802
    if version and _scenario.get("v1_only"):
        raise NVMLError(13)
    _act(device, "nvmlDeviceGetMemoryInfo")
    memory = {name: device[name] for name in ("total", "used", "free")}
    if version:
        return SimpleNamespace(**memory, reserved=device["reserved"])
    return SimpleNamespace(**{**memory, "used": device["used"] + device["reserved"]})


def _processes(device, kind):
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in device.get(kind, ())]


def nvmlDeviceGetComputeRunningProcesses(device):  # noqa: N802
    _act(device, "nvmlDeviceGetComputeRunningProcesses")
    return _processes(device, "compute")


def nvmlDeviceGetMPSComputeRunningProcesses(device):  # noqa: N802
    _act(device, "nvmlDeviceGetMPSComputeRunningProcesses")
    return _processes(device, "mps")


def nvmlDeviceGetMigMode(device):  # noqa: N802
    if "mig" not in device:
        raise NVMLError(3)
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(device):  # noqa: N802
    return len(device["mig"])


def nvmlDeviceGetMigDeviceHandleByIndex(device, index):  # noqa: N802
    part = device["mig"][index]
    if part is None:
        raise NVMLError(6)
    return part


def nvmlDeviceGetGpuInstanceId(part):  # noqa: N802
    return part["instance"]
