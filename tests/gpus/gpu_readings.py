"""GPU readings made up, and as two H200s showed them."""

from proc_tree import build, memory_by_gpu

from kvcache_exporter.hosts.gpu_view import gpu_pids
from kvcache_exporter.hosts.processes import HostProcesses, read_host
from kvcache_exporter.model import GpuProcess, GpuReading

GIB = 1 << 30
URL = "http://127.0.0.1:8000/metrics"
NOBODY = HostProcesses(complete=True)


def gpu(name, used=GIB, processes=(), **more):
    held = None if processes is None else tuple(GpuProcess(*each) for each in processes)
    values = {"source": "nvml", "total_bytes": 100 * GIB, "used_bytes": used, "processes": held}
    return GpuReading(f"GPU-{name}", **{**values, **more})


def recorded(tmp_path, title):
    """The GPUs and the process tree of one part of the recording."""
    held = memory_by_gpu(title)
    gpus = [
        GpuReading(
            uuid,
            "nvml",
            used_bytes=sum(processes.values()) + 9_240_576,
            processes=tuple(GpuProcess(*each) for each in processes.items()),
        )
        for uuid, processes in held.items()
    ]
    host = read_host(build(tmp_path, title).root, gpu_pids(gpus), {"t": URL})
    return gpus, host
