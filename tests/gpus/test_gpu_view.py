"""One reading a GPU where several sources see it, and memory that nobody holds."""

from gpu_readings import GIB, NOBODY, URL, gpu, recorded

from kvcache_exporter.hosts.gpu_view import engine_bytes, one_view, unowned_bytes, with_unowned
from kvcache_exporter.hosts.merge import assign
from kvcache_exporter.hosts.processes import HostProcesses, Owner
from kvcache_exporter.model import GpuReading, GpuSourceReading, Target


def source(name, *gpus, up=True):
    return GpuSourceReading(name, 1000.0, up, gpus)


def test_after_the_api_server_was_killed_nearly_all_memory_is_held_by_no_live_engine(tmp_path):
    gpus, host = recorded(tmp_path, "after SIGKILL")
    assert assign(Target("t", URL), ["0", "1"], gpus, host).gpus == {}
    for each in gpus:
        assert unowned_bytes(each, host) == each.used_bytes
        assert engine_bytes(each, host) == {}


def test_memory_of_a_live_engine_is_told_by_engine_and_only_the_drivers_own_is_unowned(tmp_path):
    gpus, host = recorded(tmp_path, "data parallel")
    assert engine_bytes(gpus[0], host) == {Owner("t", "0"): 134_811_222_016}
    assert unowned_bytes(gpus[0], host) == 9_240_576


def test_memory_without_any_process_is_unowned():
    assert unowned_bytes(gpu("a", 67 * GIB), NOBODY) == 67 * GIB


def test_a_list_that_means_nothing_makes_unowned_memory_unknown():
    assert unowned_bytes(gpu("a", 67 * GIB), HostProcesses(complete=False)) is None
    assert unowned_bytes(gpu("a", 67 * GIB, None), NOBODY) is None
    assert unowned_bytes(gpu("a", 67 * GIB, [(7, None)]), NOBODY) is None
    assert unowned_bytes(gpu("a", None), NOBODY) is None


def test_nvml_is_the_source_and_dcgm_adds_pod_and_xid():
    dcgm = gpu("a", GIB + 5, None, source="dcgm", pod="p", pods=(("n", "p"),), xid=79)
    view = one_view([source("dcgm", dcgm), source("nvml", gpu("a", GIB))][::-1])
    (one,) = view.gpus
    assert (one.source, one.used_bytes, one.pod, one.xid) == ("nvml", GIB, "p", 79)
    assert view.problems == ()


def test_two_sources_that_differ_are_reported_and_the_first_is_shown():
    readings = [source("nvml", gpu("a", 50 * GIB)), source("dcgm", gpu("a", GIB, source="dcgm"))]
    view = one_view(readings)
    assert view.gpus[0].used_bytes == 50 * GIB
    assert [problem.code for problem in view.problems] == ["gpu_sources_disagree"]
    assert "GPU-a" in view.problems[0].text


def test_dcgm_takes_over_whole_when_nvml_is_down():
    readings = [
        source("nvml", gpu("a", 50 * GIB), up=False),
        source("dcgm", gpu("a", GIB, source="dcgm")),
    ]
    (one,) = one_view(readings).gpus
    assert (one.source, one.used_bytes) == ("dcgm", GIB)


def test_a_gpu_that_only_dcgm_sees_on_this_host_is_reported():
    both = source("dcgm", gpu("a", source="dcgm"), gpu("b", source="dcgm"))
    view = one_view([source("nvml", gpu("a")), both])
    assert [problem.code for problem in view.problems] == ["gpu_sources_disagree"]
    assert "GPU-b" in view.problems[0].text


def test_a_dcgm_exporter_of_another_host_is_no_check():
    view = one_view([source("nvml", gpu("a")), source("dcgm", gpu("b", source="dcgm"))])
    assert ([g.uuid for g in view.gpus], view.problems) == (["GPU-a", "GPU-b"], ())


def test_a_mig_slice_seen_by_both_sources_is_one_slice():
    nvml = GpuReading("MIG-x", "nvml", parent_uuid="GPU-a", instance_id=3, used_bytes=GIB)
    dcgm = GpuReading(
        "MIG-GPU-a/3",
        "dcgm",
        parent_uuid="GPU-a",
        instance_id=3,
        used_bytes=GIB,
        pods=(("n", "p"),),
    )
    view = one_view([source("nvml", nvml), source("dcgm", dcgm)])
    assert [(g.uuid, g.pods) for g in view.gpus] == [("MIG-x", (("n", "p"),))]


def test_an_empty_process_list_of_a_pid_namespace_is_not_passed_on_as_nobody():
    (blind,) = with_unowned([gpu("a", 67 * GIB)], HostProcesses(complete=False))
    assert (blind.processes, blind.unowned_bytes) == (None, None)
    (seeing,) = with_unowned([gpu("a", 67 * GIB)], NOBODY)
    assert (seeing.processes, seeing.unowned_bytes) == ((), 67 * GIB)
