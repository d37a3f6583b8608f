"""Which engine has which GPU; unknown stays unknown and nothing is counted on another's GPU."""

from gpu_readings import GIB, NOBODY, URL, gpu, recorded

from kvcache_exporter.hosts.gpu_view import engine_bytes
from kvcache_exporter.hosts.merge import assign, assign_recorded, gpus_of_target
from kvcache_exporter.hosts.processes import HostProcesses, Owner
from kvcache_exporter.model import GpuProcess, GpuReading, Problem, Target


def names(assignment):
    return {engine: [g.uuid for g in gpus] for engine, gpus in assignment.gpus.items()}


def test_tensor_parallel_gives_one_engine_both_gpus(tmp_path):
    gpus, host = recorded(tmp_path, "tensor parallel")
    found = assign(Target("t", URL), ["0"], gpus, host)
    assert names(found) == {"0": [gpu.uuid for gpu in gpus]}
    assert (found.by, found.problem) == ("processes", None)


def test_data_parallel_gives_each_engine_its_own_gpu(tmp_path):
    gpus, host = recorded(tmp_path, "data parallel")
    found = assign(Target("t", URL), ["0", "1"], gpus, host)
    assert names(found) == {"0": [gpus[0].uuid], "1": [gpus[1].uuid]}


def test_two_engines_on_one_gpu_each_have_it():
    shared = gpu("a", 3 * GIB, [(1, GIB), (2, 2 * GIB)])
    host = HostProcesses({1: Owner("t", None), 2: Owner("u", None)}, complete=True)
    for target in ("t", "u"):
        assert names(assign(Target(target, URL), ["0"], [shared], host)) == {"0": ["GPU-a"]}
    assert engine_bytes(shared, host) == {Owner("t", None): GIB, Owner("u", None): 2 * GIB}


def test_a_mig_slice_belongs_to_the_engine_whose_process_is_on_it():
    slices = [
        GpuReading("MIG-x", "nvml", parent_uuid="GPU-a", processes=(GpuProcess(1, GIB),)),
        GpuReading("MIG-y", "nvml", parent_uuid="GPU-a", processes=(GpuProcess(2, GIB),)),
    ]
    host = HostProcesses({1: Owner("t", None), 2: Owner("u", None)}, complete=True)
    assert names(assign(Target("u", URL), ["0"], slices, host)) == {"0": ["MIG-y"]}


def test_pod_labels_give_a_pod_its_gpus_and_no_other():
    gpus = [
        gpu("a", pods=(("n", "p"),)),
        gpu("b", pods=(("n", "q"),)),
        gpu("c", pods=(("m", "p"),)),
    ]
    target = Target("t", URL, labels=(("namespace", "n"), ("pod", "p")))
    found = assign(target, ["0"], gpus, NOBODY)
    assert (names(found), found.by) == ({"0": ["GPU-a"]}, "pod")


def test_engines_of_one_pod_never_share_its_gpus_by_guess():
    gpus = [gpu(letter, pods=(("n", "p"),)) for letter in "ab"]
    target = Target("t", URL, labels=(("namespace", "n"), ("pod", "p")))
    found = assign(target, ["0", "1"], gpus, NOBODY)
    assert (found.gpus, found.problem.code) == ({}, "gpus_of_engine_unknown")


def test_engines_that_the_process_tree_cannot_number_stay_unknown():
    host = HostProcesses({1: Owner("t", None), 2: Owner("t", None)}, complete=True)
    gpus = [gpu("a", processes=[(1, GIB)]), gpu("b", processes=[(2, GIB)])]
    found = assign(Target("t", URL), ["0", "1"], gpus, host)
    assert (found.gpus, found.problem.code) == ({}, "gpus_of_engine_unknown")


def test_a_target_without_pod_takes_no_gpu_without_pod():
    assert assign(Target("t", URL), ["0"], [gpu("a")], NOBODY).gpus == {}


def test_the_operators_word_comes_before_what_was_found():
    gpus = [gpu("a", processes=[(1, GIB)]), gpu("b")]
    host = HostProcesses({1: Owner("t", None)}, complete=True)
    found = assign(Target("t", URL, gpu_uuids=("GPU-b",)), ["0"], gpus, host)
    assert (names(found), found.by) == ({"0": ["GPU-b"]}, "configuration")


def test_configured_gpus_of_several_engines_go_to_them_in_the_order_written():
    gpus = [gpu(letter) for letter in "abcd"]
    target = Target("t", URL, gpu_uuids=("GPU-c", "GPU-a", "GPU-b", "GPU-d"))
    found = assign(target, ["0", "1"], gpus, NOBODY)
    assert names(found) == {"0": ["GPU-c", "GPU-a"], "1": ["GPU-b", "GPU-d"]}


def test_configured_gpus_that_do_not_divide_stay_unknown():
    gpus = [gpu(letter) for letter in "abc"]
    target = Target("t", URL, gpu_uuids=("GPU-a", "GPU-b", "GPU-c"))
    found = assign(target, ["0", "1"], gpus, NOBODY)
    assert (found.gpus, found.problem.code) == ({}, "gpus_of_engine_unknown")


def test_the_process_tree_orders_configured_gpus_of_several_engines():
    gpus = [gpu("a", processes=[(1, 1)]), gpu("b", processes=[(2, 1)])]
    host = HostProcesses({1: Owner("t", "1"), 2: Owner("t", "0")}, complete=True)
    found = assign(Target("t", URL, gpu_uuids=("GPU-a", "GPU-b")), ["0", "1"], gpus, host)
    assert names(found) == {"0": ["GPU-b"], "1": ["GPU-a"]}


def test_a_configured_gpu_that_no_source_sees_is_named():
    found = assign(Target("t", URL, gpu_uuids=("GPU-z",)), ["0"], [gpu("a")], NOBODY)
    assert (found.gpus, found.problem.code) == ({}, "gpu_not_seen")
    assert "GPU-z" in found.problem.text


def test_the_reason_of_the_process_tree_travels_with_an_unknown_mapping():
    why = Problem("process_tree_forbidden", "...")
    found = assign(Target("t", URL), ["0"], [gpu("a")], HostProcesses(problems={"t": why}))
    assert (found.gpus, found.by, found.problem) == ({}, "unknown", why)


def test_the_one_engine_of_a_recording_has_its_gpus_and_two_engines_have_none_by_guess():
    gpus = [gpu("a", processes=[(1, GIB)]), gpu("b", processes=[(2, GIB)])]
    assert names(assign_recorded(["0"], gpus, alive=True)) == {"0": ["GPU-a", "GPU-b"]}
    assert assign_recorded(["0", "1"], gpus, alive=True).gpus == {}


def test_a_recorded_list_without_processes_means_nobody_only_when_no_engine_lives():
    def unowned(alive):
        return assign_recorded(["0"], [gpu("a", 67 * GIB)], alive=alive).gpus["0"][0].unowned_bytes

    assert unowned(alive=False) == 67 * GIB
    assert unowned(alive=True) is None


def test_a_recording_takes_the_gpus_of_its_target_only():
    gpus = [gpu("a", processes=[(1, GIB)]), gpu("b"), gpu("c", pods=(("n", "p"),))]
    host = HostProcesses({1: Owner("t", None)}, complete=True)
    pod = (("namespace", "n"), ("pod", "p"))
    for target, expected in [
        (Target("t", URL), ["GPU-a"]),
        (Target("u", URL), []),
        (Target("u", URL, labels=pod), ["GPU-c"]),
        (Target("t", URL, gpu_uuids=("GPU-b",)), ["GPU-b"]),
    ]:
        assert [g.uuid for g in gpus_of_target(target, gpus, host)] == expected
