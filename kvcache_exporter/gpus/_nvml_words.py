"""What NVML's error codes mean to an operator, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_exporter.model import Problem

UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION = 1, 3, 4
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND = 9, 10, 12
GPU_IS_LOST, RESET_REQUIRED, OPERATING_SYSTEM = 15, 16, 17
VERSION_MISMATCH, GPU_NOT_FOUND, UNKNOWN = 18, 28, 999

FRESH_PROCESS_HELPS = {
    UNINITIALIZED,
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    RESET_REQUIRED,
    VERSION_MISMATCH,
    GPU_NOT_FOUND,
    UNKNOWN,
}
"""Codes that a process which has loaded the library keeps answering after the fault is gone."""

GONE = {"gpu_lost", "gpu_reset_required", "gpu_vanished"}
"""Problems of a GPU that does not answer any more."""

_CAUSES: Mapping[int, tuple[str, str]] = {
    UNINITIALIZED: (
        "nvml_uninitialized",
        "the driver was unloaded under us; it is tried again in a fresh process",
    ),
    NOT_SUPPORTED: (
        "not_supported",
        "this GPU does not offer it (parts with unified memory have no memory of their own to "
        "report); watch the host's memory instead",
    ),
    NO_PERMISSION: (
        "no_permission",
        "the exporter may not ask: give its user access to /dev/nvidia*, or run its container "
        "with NVIDIA_DRIVER_CAPABILITIES=utility",
    ),
    DRIVER_NOT_LOADED: (
        "driver_not_loaded",
        "the NVIDIA kernel driver is not loaded: run `nvidia-smi` and `modprobe nvidia` on the "
        "host; it is tried again by itself",
    ),
    TIMEOUT: (
        "nvml_timeout",
        "the driver took too long: look for Xid lines in `dmesg` on the host",
    ),
    LIBRARY_NOT_FOUND: (
        "library_not_found",
        "libnvidia-ml.so.1 is not here: on a host without NVIDIA driver that is expected (switch "
        "NVML off); in a container use `runtimeClassName: nvidia` or `docker run --gpus all`",
    ),
    GPU_IS_LOST: (
        "gpu_lost",
        "the GPU has fallen off the bus (Xid 79): drain the node and reboot it",
    ),
    RESET_REQUIRED: (
        "gpu_reset_required",
        "the GPU needs a reset: stop what runs on it, then `nvidia-smi --gpu-reset -i <index>`, "
        "or reboot the node",
    ),
    OPERATING_SYSTEM: (
        "blocked_by_os",
        "the operating system refused the call: check the device cgroup and the security profile "
        "of the exporter's container",
    ),
    VERSION_MISMATCH: (
        "version_mismatch",
        "driver and library differ in version, as after a driver upgrade: restart the exporter's "
        "pod so that it gets the new library, or reboot the node; it is tried again by itself",
    ),
    GPU_NOT_FOUND: (
        "gpu_not_found",
        "the driver has no such GPU any more: compare `nvidia-smi -L` with what was there before",
    ),
    UNKNOWN: (
        "nvml_unknown_error",
        "in a container this is what remains for ever after its device cgroup was rewritten (for "
        "example by `systemctl daemon-reload`): recreate the container; otherwise see `dmesg`",
    ),
}


def problem(error: Mapping[str, Any]) -> Problem:
    """Put words to one error that the child met."""
    call, code, text = error["call"], error["code"], error["text"]
    if call == "import pynvml":
        return Problem(
            "pynvml_missing",
            f"the Python package nvidia-ml-py cannot be imported ({text}): install it",
        )
    name, advice = _CAUSES.get(code, ("nvml_error", "look for Xid lines in `dmesg` on the host"))
    return Problem(name, f"{call}: {text}: {advice}")


NO_GPUS = Problem(
    "no_gpus",
    "NVML works but shows no GPU. On a host, compare `nvidia-smi -L`. In a container one of three "
    "things is missing: (1) `runtimeClassName: nvidia` together with NVIDIA_VISIBLE_DEVICES=all, "
    "needed since the nvidia runtime is no longer the default of its nodes; (2) with the NRI "
    "plugin of the container toolkit, the annotation `nvidia.cdi.k8s.io/container.<name>: "
    "management.nvidia.com/gpu=all`, with the namespace listed in "
    "NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES; (3) on hardened nodes, which ignore "
    "NVIDIA_VISIBLE_DEVICES of unprivileged pods, `privileged: true` or that annotation",
)

DIED = Problem(
    "nvml_process_died",
    "the process that asks NVML ended in the middle of a call: look for a crash in `dmesg`; "
    "it is started again by itself",
)

NOT_TRIED = Problem("nvml_not_tried", "NVML has not answered yet: wait for the next cycle")


def not_started(error: OSError) -> Problem:
    """Say that the machine has no room for one more process."""
    return Problem(
        "nvml_not_started",
        f"the process that asks NVML cannot be started ({error.strerror}): look at the memory and "
        "process limits of the exporter's container; it is tried again by itself",
    )


def hung(seconds: float) -> Problem:
    """Say that a call to NVML has not come back for this long."""
    return Problem(
        "nvml_hung",
        f"NVML has not answered for {seconds:.0f} s: the driver or a GPU hangs. Look for Xid lines "
        "in `dmesg` and run `nvidia-smi` under `timeout 10`; usually the node needs a reboot. "
        "KV cache verdicts go on without it",
    )


def given_up(count: int) -> Problem:
    """Say that nothing is tried any more because too many calls hang."""
    return Problem(
        "nvml_hung",
        f"{count} processes hang in NVML and no further one is started until one of them ends: "
        "look for Xid lines in `dmesg`; usually the node needs a reboot. KV cache verdicts go on "
        "without it",
    )
