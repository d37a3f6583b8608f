"""NVML through its child process, against a driver that does everything drivers do."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import pytest
from nvml_scenario import H200_RESERVED, H200_TOTAL, Driver, gpu

from kvcache_exporter.gpus import nvml
from kvcache_exporter.gpus.nvml import NvmlSource

GIB = 1 << 30


@pytest.fixture
def driver(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "nvml.json")
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver


@pytest.fixture
def source():
    source = NvmlSource(deadline_seconds=20.0)
    yield source
    source.close()


@pytest.fixture
def impatient():
    """A source that does not wait; its children are ended whatever they do."""
    source = NvmlSource(deadline_seconds=0.3)
    yield source
    for pid in source.pids:
        os.kill(pid, signal.SIGKILL)
    source.close()


def hold(pid):
    """Stop a process, so that like one in state D it does not notice that it was left."""
    os.kill(pid, signal.SIGSTOP)
    threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    wait_until(lambda: all(state(thread) == "T" for thread in threads))


def state(pid):
    """Its state by /proc; Z also when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


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


def test_zero_bytes_of_a_process_mean_that_the_driver_cannot_say(driver, source):
    driver.says(gpu("a", GIB, compute=[[30, 0]]))
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


@pytest.mark.parametrize(
    ("code", "problem", "advice"),
    [
        (12, "library_not_found", "runtimeClassName: nvidia"),
        (9, "driver_not_loaded", "modprobe nvidia"),
        (18, "version_mismatch", "restart the exporter's pod"),
        (999, "nvml_unknown_error", "recreate the container"),
        (4, "no_permission", "/dev/nvidia*"),
        (15, "gpu_lost", "reboot"),
        (16, "gpu_reset_required", "nvidia-smi --gpu-reset"),
        (17, "blocked_by_os", "device cgroup"),
        (12345, "nvml_error", "dmesg"),
    ],
)
def test_a_driver_that_cannot_be_used_is_named_with_the_next_step(
    driver, source, code, problem, advice
):
    driver.says(init={"error": code})
    reading = source.read(1000.0)
    assert (reading.up, reading.gpus, reading.time) == (False, (), 1000.0)
    assert reading.problem.code == problem
    assert advice in reading.problem.text


def test_without_any_driver_the_cause_is_named(source, monkeypatch, tmp_path):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    reading = source.read(1000.0)
    if reading.up:
        pytest.skip("this machine has a driver")
    assert reading.problem.code == "library_not_found"


def test_missing_bindings_are_named(source, monkeypatch, tmp_path):
    (tmp_path / "pynvml.py").write_text("raise ImportError('no module named pynvml')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reading = source.read(1000.0)
    assert reading.problem.code == "pynvml_missing"
    assert "nvidia-ml-py" in reading.problem.text


def test_no_gpu_in_a_container_is_up_and_names_the_three_fixes(driver, source):
    driver.says()
    reading = source.read(1000.0)
    assert (reading.up, reading.expected, reading.seen) == (True, 0, 0)
    assert reading.problem.code == "no_gpus"
    for fix in ("runtimeClassName: nvidia", "management.nvidia.com/gpu=all", "privileged: true"):
        assert fix in reading.problem.text


def test_a_missing_driver_is_tried_again_ever_more_seldom(driver, source):
    driver.says(init={"error": 12})
    tried = []
    for now in range(0, 2000, 5):
        before = source._retry_at
        source.read(float(now))
        if source._retry_at != before:
            tried.append(now)
    waits = [later - earlier for earlier, later in pairwise(tried)]
    assert waits[:6] == [5, 10, 20, 40, 80, 160]
    assert set(waits[6:]) == {300}


def test_a_driver_upgrade_is_survived_because_each_try_loads_the_library_anew(driver, source):
    driver.says(init={"error": 18})
    assert not source.read(0.0).up
    first = source._left[0].pid
    driver.says(gpu("a", GIB))
    assert not source.read(4.0).up
    reading = source.read(5.0)
    assert reading.gpus[0].used_bytes == GIB
    assert source.pids != [first]


def test_a_child_that_crashes_is_replaced(driver, source):
    driver.says(gpu("a", GIB))
    source.read(0.0)
    os.kill(source.pids[0], signal.SIGKILL)
    crashed = source.read(10.0)
    assert (crashed.up, crashed.problem.code) == (False, "nvml_process_died")
    assert source.read(20.0).up


@pytest.mark.parametrize("init", [{}, {"hang": True}])
def test_a_hung_call_is_reported_without_waiting_for_it(driver, impatient, init):
    driver.says(gpu("a", hangs=["nvmlDeviceGetMemoryInfo"]), init=init)
    reading = impatient.read(1000.0)
    assert (reading.up, reading.problem.code) == (False, "nvml_hung")
    assert "dmesg" in reading.problem.text
    assert len(impatient.pids) == 1


def test_last_good_values_stand_in_with_their_age_for_a_minute(driver, impatient):
    driver.says(gpu("a", GIB))
    impatient._deadline_seconds = 20.0
    impatient.read(1000.0)
    impatient._deadline_seconds = 0.3
    driver.says(gpu("a", GIB, hangs=["nvmlDeviceGetMemoryInfo"]))
    hung = impatient.read(1010.0)
    assert (hung.up, hung.time, hung.gpus[0].used_bytes) == (False, 1000.0, GIB)
    later = impatient.read(1070.0)
    assert (later.up, later.gpus[0].uuid, later.gpus[0].used_bytes) == (False, "GPU-a", None)
    assert (later.expected, later.seen) == (1, 0)


def test_an_answer_that_is_only_late_is_still_taken(driver, impatient):
    driver.says(gpu("a", GIB))
    impatient._deadline_seconds = 0.0
    assert impatient.read(0.0).problem.code == "nvml_hung"
    impatient._process.answer = lambda _, answer=impatient._process.answer: answer(20.0)
    assert impatient.read(10.0).gpus[0].used_bytes == GIB


def test_a_child_that_hangs_ends_by_itself_when_it_is_left(driver, impatient):
    driver.says(gpu("a", hangs=["nvmlDeviceGetUUID"]))
    impatient.read(0.0)
    (hung,) = impatient.pids
    impatient.read(nvml.ABANDON_AFTER_SECONDS)
    wait_until(lambda: hung not in impatient.pids)
    driver.says(gpu("a", GIB))
    impatient._deadline_seconds = 20.0
    assert impatient.read(60.0).up


def test_two_children_that_the_kernel_holds_are_the_last_until_one_ends(driver, impatient):
    driver.says(gpu("a", hangs=["nvmlDeviceGetUUID"]))
    now, held = 0.0, []
    for _ in range(2):
        impatient.read(now)
        held.append(impatient._process.pid)
        hold(held[-1])
        impatient.read(now + nvml.ABANDON_AFTER_SECONDS)
        now += 1000.0
    for _ in range(5):
        reading = impatient.read(now)
        assert (reading.problem.code, sorted(impatient.pids)) == ("nvml_hung", sorted(held))
        assert "no further one is started" in reading.problem.text
        now += 1000.0
    os.kill(held[0], signal.SIGCONT)
    wait_until(lambda: held[0] not in impatient.pids)
    driver.says(gpu("a", GIB))
    impatient._deadline_seconds = 20.0
    assert impatient.read(now).up


def test_closing_does_not_wait_for_a_child_that_the_kernel_holds(driver, impatient):
    driver.says(gpu("a", hangs=["nvmlDeviceGetUUID"]))
    impatient.read(0.0)
    process = impatient._process
    hold(process.pid)
    impatient.close()
    assert process.alive
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not process.alive)


def test_no_child_outlives_an_exporter_that_is_killed(driver):
    program = textwrap.dedent("""
        import time
        from kvcache_exporter.gpus.nvml import NvmlSource
        source = NvmlSource(deadline_seconds=0.3)
        source.read(0.0)
        print(source.pids[0], flush=True)
        time.sleep(3600)
    """)
    driver.says(gpu("a", hangs=["nvmlDeviceGetMemoryInfo"]))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as exporter:
        child = int(exporter.stdout.readline())
        exporter.kill()
    wait_until(lambda: state(child) == "Z")


def test_the_exporter_itself_never_loads_the_driver(driver):
    program = textwrap.dedent("""
        import sys
        from kvcache_exporter.gpus import open_sources
        (source,) = open_sources(lambda url: b"", {})
        assert source.read(0.0).up
        source.close()
        assert "pynvml" not in sys.modules
    """)
    driver.says(gpu("a"))
    subprocess.run([sys.executable, "-c", program], check=True)
