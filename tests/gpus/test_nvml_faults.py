"""A driver that is missing, broken or hangs: named, survived and never waited for."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import pytest
from nvml_scenario import gpu

from kvcache_exporter.gpus import nvml
from kvcache_exporter.gpus.nvml import NvmlSource

GIB = 1 << 30


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


def test_a_machine_without_room_for_a_process_is_named_and_tried_again(driver, source, monkeypatch):
    driver.says(gpu("a", GIB))
    with monkeypatch.context() as full:
        full.setattr(sys, "executable", "/nowhere/python")
        reading = source.read(0.0)
        assert (reading.up, reading.problem.code) == (False, "nvml_not_started")
    assert not source.read(4.0).up
    assert source.read(5.0).up


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
