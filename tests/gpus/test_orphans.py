"""Processes on a GPU whose server is gone, and what an incomplete view of them proves."""

import os
import shutil
from pathlib import Path

import pytest
from proc_tree import ProcTree, build, pids

from kvcache_exporter.hosts.processes import (
    HostProcesses,
    HostReader,
    Owner,
    read_host,
)

URL = {"t": "http://127.0.0.1:8000/metrics"}


def test_workers_that_outlive_a_killed_api_server_are_orphans(tmp_path):
    host = read_host(build(tmp_path, "after SIGKILL").root, pids("after SIGKILL"), URL)
    assert host.owners == {}
    assert host.orphans == {2748, 2753}


def test_a_name_that_was_cut_at_fifteen_characters_is_still_an_engine(tree):
    tree.process(21, 1, "")
    assert read_host(tree.root, [21], URL).orphans == {21}


def test_a_headless_engine_below_a_living_process_is_no_orphan(tree):
    tree.process(60, 1, "python3 launch.py --headless")
    tree.process(61, 60, "VLLM::EngineCore_DP2")
    host = read_host(tree.root, [61], URL)
    assert (host.owners, host.orphans) == ({}, frozenset())


@pytest.mark.parametrize("server", ["python3 server.py", "/usr/bin/python3.12 -m vllm.x"])
def test_a_server_that_is_process_one_of_its_container_leaves_no_orphan(tmp_path, server):
    tree = ProcTree(tmp_path)
    (tree.root / "1" / "cmdline").write_bytes(server.replace(" ", "\0").encode())
    tree.process(71, 1, "VLLM::EngineCore")
    assert read_host(tree.root, [71], URL).orphans == frozenset()


@pytest.mark.parametrize(
    "reaper", ["/usr/lib/systemd/systemd --user", "tini -- vllm serve m", "containerd-shim-runc-v2"]
)
def test_an_engine_handed_to_a_collector_of_the_dead_is_an_orphan(tree, reaper):
    tree.process(80, 1, reaper)
    tree.process(81, 80, "VLLM::EngineCore")
    assert read_host(tree.root, [81], URL).orphans == {81}


def test_a_training_job_is_neither_owned_nor_an_orphan(tree):
    tree.process(90, 1, "python3 train.py")
    host = read_host(tree.root, [90], {})
    assert (host.owners, host.orphans) == ({}, frozenset())


def test_a_pid_namespace_of_our_own_makes_the_process_list_incomplete(tree):
    tree.namespace("pid:[4026532999]")
    host = read_host(tree.root, [], URL)
    assert not host.complete
    assert host.problems["t"].code == "gpu_pids_not_visible"
    assert "hostPID" in host.problems["t"].text


def test_host_pids_inside_a_pid_namespace_belong_to_nobody(tree):
    tree.namespace("pid:[4026532999]")
    host = read_host(tree.root, [777_001, 777_002], URL)
    assert (host.owners, host.orphans, host.complete) == ({}, frozenset(), False)


def test_container_pids_that_exist_here_make_the_list_meaningful(tree):
    tree.namespace("pid:[4026532999]")
    assert read_host(tree.root, [12], URL).complete


def test_sockets_we_may_not_see_leave_the_owner_unknown_with_the_reason(tree, monkeypatch):
    def forbidden(path):
        if path.name == "fd":
            raise PermissionError(path)
        return real(path)

    real = type(tree.root).iterdir
    monkeypatch.setattr(type(tree.root), "iterdir", forbidden)
    host = read_host(tree.root, [12], URL)
    assert host.owners == {}
    assert host.problems["t"].code == "process_tree_forbidden"
    assert "CAP_SYS_PTRACE" in host.problems["t"].text


def test_a_proxy_in_front_of_the_server_is_named_as_such(tree):
    tree.listen("127.0.0.1", 9000, 800)
    tree.process(95, 1, "nginx", [800])
    host = read_host(tree.root, [12], {"p": "http://127.0.0.1:9000"})
    assert host.problems["p"].code == "no_gpu_process_below"


def test_an_engine_without_gpu_is_no_problem_and_makes_an_empty_list_prove_nothing(tree):
    assert read_host(tree.root, [], URL) == HostProcesses(complete=False)


def test_an_empty_list_means_nobody_where_nothing_serves(tree):
    assert read_host(tree.root, [], {}) == HostProcesses(complete=True)


def test_a_dead_process_that_nvml_still_names_owns_nothing(tree):
    host = read_host(tree.root, [12, 4711], URL)
    assert (host.owners, host.orphans) == ({12: Owner("t", None)}, {4711})


def test_a_pid_of_another_namespace_is_not_taken_for_a_dead_one(tree):
    tree.namespace("pid:[4026532999]")
    assert read_host(tree.root, [12, 4711], URL).orphans == frozenset()


def test_a_server_that_dies_is_noticed_at_once(tree):
    reader = HostReader(tree.root)
    assert reader.read([12], URL, 0.0).owners == {12: Owner("t", None)}
    shutil.rmtree(tree.root / "10")
    (tree.root / "11" / "stat").write_text("11 (VLLM::EngineCor) S 1 1 1 0 -1\n")
    host = reader.read([12], URL, 10.0)
    assert (host.owners, host.orphans) == ({}, {12})


def test_our_own_proc_is_readable():
    host = read_host(Path("/proc"), [os.getpid()], {})
    assert (host.owners, host.complete) == ({}, True)
