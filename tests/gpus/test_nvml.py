"""NVML through its child process, against a driver that does everything drivers do."""

import pytest
from nvml_scenario import H200_RESERVED, H200_TOTAL, gpu

GIB = 1 << 30


def test_memory_v2_keeps_reserved_apart_from_used(driver, source):
    driver.says(gpu("a", 5 * GIB))
    (reading,) = source.read(1000.0).gpus
    assert (reading.used_bytes, reading.reserved_bytes) == (5 * GIB, H200_RESERVED)
    assert reading.total_bytes == H200_TOTAL
    assert reading.free_bytes == H200_TOTAL - 5 * GIB - H200_RESERVED


def test_memory_v1_leaves_reserved_unknown_because_it_is_inside_used(driver, source):
    driver.says(gpu("a", 5 * GIB), v1_only=True)
    (reading,) = source.read(1000.0).gpus
    assert reading.reserved_bytes is None
    assert reading.used_bytes == 5 * GIB + H200_RESERVED
    assert reading.problem is None


@pytest.mark.parametrize("as_bytes", [False, True])
def test_identity_is_text_whether_the_bindings_return_str_or_bytes(driver, source, as_bytes):
    driver.says(gpu("a"), bytes=as_bytes, driver_version="580.95.05")
    (reading,) = source.read(1000.0).gpus
    assert (reading.uuid, reading.model) == ("GPU-a", "NVIDIA H200")
    assert (reading.driver_version, reading.index, reading.source) == ("580.95.05", 0, "nvml")


def test_compute_and_mps_processes_are_one_list_without_garbage_pids(driver, source):
    driver.says(
        gpu("a", compute=[[0, 7], [4294967295, 7], [31, None], [30, GIB]], mps=[[30, GIB], [29, 5]])
    )
    (reading,) = source.read(1000.0).gpus
    assert [(p.pid, p.used_bytes) for p in reading.processes] == [(29, 5), (30, GIB), (31, None)]


@pytest.mark.parametrize("size", [0, None, 0xFFFFFFFFFFFFFFFF])
def test_a_process_whose_bytes_the_driver_cannot_say_has_none(driver, source, size):
    driver.says(gpu("a", GIB, compute=[[30, size]]))
    (reading,) = source.read(1000.0).gpus
    assert reading.processes[0].used_bytes is None


def test_no_process_and_cannot_tell_are_different(driver, source):
    no_right = {"nvmlDeviceGetComputeRunningProcesses": 4}
    driver.says(gpu("a"), gpu("b", errors=no_right))
    nobody, cannot_tell = source.read(1000.0).gpus
    assert nobody.processes == ()
    assert cannot_tell.processes is None
    assert cannot_tell.total_bytes == H200_TOTAL
    assert cannot_tell.problem.code == "no_permission"


def test_a_part_without_mps_still_lists_its_compute_processes(driver, source):
    without = {"nvmlDeviceGetMPSComputeRunningProcesses": 3}
    driver.says(gpu("a", compute=[[30, 1]], errors=without))
    (reading,) = source.read(1000.0).gpus
    assert [p.pid for p in reading.processes] == [30]
    assert reading.problem is None


def test_a_part_without_a_name_is_read_all_the_same(driver, source):
    driver.says(gpu("a", GIB, errors={"nvmlDeviceGetName": 3}))
    (reading,) = source.read(1000.0).gpus
    assert (reading.model, reading.used_bytes, reading.problem) == (None, GIB, None)


def test_a_process_list_that_grows_while_it_is_asked_for_is_no_fault(driver, source):
    growing = {"nvmlDeviceGetComputeRunningProcesses": 7}
    driver.says(gpu("a", 1, errors=growing))
    (reading,) = source.read(1000.0).gpus
    assert (reading.processes, reading.problem) == (None, None)


def test_unified_memory_parts_say_that_they_have_no_memory_of_their_own(driver, source):
    driver.says(gpu("gb10", compute=[[30, 1]], errors={"nvmlDeviceGetMemoryInfo": 3}))
    reading = source.read(1000.0)
    assert reading.up
    assert reading.gpus[0].total_bytes is None
    assert [p.pid for p in reading.gpus[0].processes] == [30]
    assert reading.gpus[0].problem.code == "not_supported"
    assert reading.seen == 1


def test_a_lost_gpu_leaves_the_others_reported_and_keeps_its_name(driver, source):
    four = [gpu(letter, GIB) for letter in "abcd"]
    driver.says(*four)
    assert source.read(1000.0).seen == 4
    driver.says(four[0], gpu("b", errors={"*": 15}), *four[2:])
    for now in (1010.0, 1020.0, 1030.0, 1040.0):
        reading = source.read(now)
        assert reading.up
        assert (reading.expected, reading.seen) == (4, 3)
        assert {g.uuid for g in reading.gpus} == {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}
        assert [g.used_bytes for g in reading.gpus if g.uuid != "GPU-b"] == [GIB] * 3
        (lost,) = [g for g in reading.gpus if g.uuid == "GPU-b"]
        assert (lost.used_bytes, lost.problem.code) == (None, "gpu_lost")
        assert lost.problem.text.startswith("GPU-b: ")
        assert reading.problem.code == "gpus_missing"


def test_a_gpu_without_handle_does_not_hide_the_others(driver, source):
    driver.says(gpu("a", GIB), gpu("b", errors={"nvmlDeviceGetHandleByIndex": 15}))
    reading = source.read(1000.0)
    assert reading.gpus[0].used_bytes == GIB
    assert reading.gpus[1].problem.code == "gpu_lost"
    assert (reading.expected, reading.seen) == (2, 1)


def test_a_gpu_that_comes_back_after_a_reset_is_read_again(driver, source):
    driver.says(gpu("a", errors={"*": 16}))
    assert source.read(1000.0).problem.code == "gpus_missing"
    driver.says(gpu("a", GIB))
    reading = source.read(1010.0)
    assert (reading.gpus[0].used_bytes, reading.seen, reading.problem) == (GIB, 1, None)


def test_a_gpu_that_vanishes_stays_expected(driver, source):
    driver.says(gpu("a"), gpu("b"))
    source.read(1000.0)
    driver.says(gpu("b"))
    reading = source.read(1010.0)
    assert (reading.expected, reading.seen) == (2, 1)
    (vanished,) = [g for g in reading.gpus if g.uuid == "GPU-a"]
    assert (vanished.problem.code, vanished.total_bytes) == ("gpu_vanished", None)


def test_gpus_are_known_by_uuid_when_their_indices_shift(driver, source):
    driver.says(gpu("a", 1), gpu("b", 2))
    source.read(1000.0)
    driver.says(gpu("b", 2), gpu("a", 1))
    reading = source.read(1010.0)
    assert {g.uuid: (g.index, g.used_bytes) for g in reading.gpus} == {
        "GPU-b": (0, 2),
        "GPU-a": (1, 1),
    }
    assert (reading.expected, reading.seen) == (2, 2)


def test_mig_slices_carry_the_memory_and_their_gpu_does_not_count_it_again(driver, source):
    parts = [
        {**gpu("x", GIB, total=10 * GIB, reserved=0, compute=[[7, GIB]]), "instance": 3},
        None,
        {**gpu("y", 0, total=10 * GIB, reserved=0), "instance": 5},
    ]
    parts[0]["uuid"], parts[2]["uuid"] = "MIG-x", "MIG-y"
    driver.says(gpu("a", GIB, mig=parts))
    reading = source.read(1000.0)
    parent, *slices = reading.gpus
    assert [(s.uuid, s.parent_uuid, s.instance_id) for s in slices] == [
        ("MIG-x", "GPU-a", 3),
        ("MIG-y", "GPU-a", 5),
    ]
    assert [p.pid for p in slices[0].processes] == [7]
    assert sum(g.used_bytes or 0 for g in reading.gpus) == GIB
    assert (parent.parent_uuid, parent.total_bytes, parent.problem) == (None, None, None)
    assert (reading.expected, reading.seen) == (1, 1)


def test_mig_mode_without_slices_leaves_the_memory_with_the_gpu(driver, source):
    driver.says(gpu("a", GIB, mig=[None, None]))
    (reading,) = source.read(1000.0).gpus
    assert reading.used_bytes == GIB
