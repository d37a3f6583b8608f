"""Who owns a process on a GPU, on trees recorded on two H200s and on trees made of their traps."""

import os
import shutil
from pathlib import Path

import pytest
from proc_tree import ProcTree, build, memory_by_gpu

from kvcache_exporter.processes import (
    REREAD_SECONDS,
    HostProcesses,
    HostReader,
    Owner,
    read_host,
)

URL = {"t": "http://127.0.0.1:8000/metrics"}
API = "python3 -m vllm.entrypoints.openai.api_server --port 8000"


def pids(title):
    return {pid for processes in memory_by_gpu(title).values() for pid in processes}


@pytest.fixture
def tree(tmp_path):
    """One API server at port 8000 with one engine core and one worker, pids 10, 11, 12."""
    tree = ProcTree(tmp_path)
    tree.listen("0.0.0.0", 8000, 500)
    tree.process(10, 1, API, [499, 500])
    tree.process(11, 10, "VLLM::EngineCore")
    tree.process(12, 11, "VLLM::Worker_TP0")
    return tree


def test_tensor_parallel_workers_belong_to_the_one_engine(tmp_path):
    host = read_host(build(tmp_path, "tensor parallel").root, pids("tensor parallel"), URL)
    assert host.owners == {1179: Owner("t", None), 1180: Owner("t", None)}
    assert (host.orphans, host.complete, host.problems) == (frozenset(), True, {})


def test_data_parallel_workers_belong_each_to_its_own_engine(tmp_path):
    host = read_host(build(tmp_path, "data parallel").root, pids("data parallel"), URL)
    assert host.owners == {2753: Owner("t", "0"), 2748: Owner("t", "1")}
    assert host.orphans == frozenset()


def test_workers_that_outlive_a_killed_api_server_are_orphans(tmp_path):
    host = read_host(build(tmp_path, "after SIGKILL").root, pids("after SIGKILL"), URL)
    assert host.owners == {}
    assert host.orphans == {2748, 2753}


def test_an_engine_core_without_worker_owns_its_memory_itself(tree):
    assert read_host(tree.root, [11], URL).owners == {11: Owner("t", None)}


def test_a_server_that_runs_its_engine_in_its_own_process_owns_its_memory(tree):
    assert read_host(tree.root, [10], URL).owners == {10: Owner("t", None)}


def test_a_name_that_was_cut_at_fifteen_characters_is_still_an_engine(tree):
    tree.process(21, 1, "")
    assert read_host(tree.root, [21], URL).orphans == {21}


@pytest.mark.parametrize(
    "url", ["http://localhost:8000", "http://127.0.0.1:8000", "http://10.0.0.7:8000/metrics"]
)
def test_a_server_on_all_addresses_is_found_by_any_name_of_this_host(tree, url):
    tree.own_address("10.0.0.7")
    assert read_host(tree.root, [12], {"t": url}).owners == {12: Owner("t", None)}


def test_a_server_is_found_by_the_host_name(tree):
    name = tree.root / "sys" / "kernel" / "hostname"
    name.parent.mkdir(parents=True)
    name.write_text("node-7\n")
    assert 12 in read_host(tree.root, [12], {"t": "http://node-7:8000"}).owners


@pytest.mark.parametrize("address", ["::", "::1", "::ffff:127.0.0.1"])
def test_ipv6_listeners_are_found(tmp_path, address):
    tree = ProcTree(tmp_path)
    tree.listen(address, 8000, 500)
    tree.process(10, 1, API, [500])
    host = "[::1]" if address == "::1" else "127.0.0.1"
    assert read_host(tree.root, [10], {"t": f"http://{host}:8000"}).owners == {10: Owner("t", None)}


def test_an_address_with_several_prefixes_is_ours(tree):
    trie = "     |-- 10.0.0.7\n        /32 link UNICAST\n        /32 host LOCAL\n"
    (tree.root / "net" / "fib_trie").write_text(trie)
    assert 12 in read_host(tree.root, [12], {"t": "http://10.0.0.7:8000"}).owners


def test_another_host_is_never_taken_for_this_one(tree):
    host = read_host(tree.root, [12], {"t": "http://10.9.9.9:8000"})
    assert (host.owners, host.problems) == ({}, {})


def test_two_servers_on_one_port_are_told_apart_by_their_address(tree):
    tree.own_address("10.0.0.7")
    tree.listen("10.0.0.7", 8000, 600)
    tree.process(30, 1, API, [600])
    urls = {"a": "http://127.0.0.1:8000", "b": "http://10.0.0.7:8000"}
    owners = read_host(tree.root, [12, 30], urls).owners
    assert owners == {12: Owner("a", None), 30: Owner("b", None)}


def test_engines_of_two_servers_share_a_gpu_without_mixing(tree):
    tree.listen("127.0.0.1", 8001, 700)
    tree.process(40, 1, API, [700])
    tree.process(41, 40, "VLLM::EngineCore")
    urls = {**URL, "u": "http://127.0.0.1:8001"}
    owners = read_host(tree.root, [12, 41], urls).owners
    assert owners == {12: Owner("t", None), 41: Owner("u", None)}


def test_pipeline_and_data_parallel_titles_of_any_prefix_name_their_engine(tree):
    tree.process(51, 10, "LLM7::EngineCore_DP13")
    tree.process(52, 51, "LLM7::Worker_DP13_PP1_TP0")
    assert read_host(tree.root, [52], URL).owners == {52: Owner("t", "13")}


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


@pytest.fixture
def pods(tmp_path):
    """Two pods on this node, each with a server at port 8000 of its own address."""
    tree = ProcTree(tmp_path)
    for number, address in ((2, "10.244.0.2"), (3, "10.244.0.3")):
        server, engine = 100 * number, 100 * number + 1
        tree.process(server, 1, API, [1000 + number])
        tree.process(engine, server, f"VLLM::EngineCore_DP{number - 2}")
        tree.pod(number, (server, engine), address, 8000, 1000 + number)
    return tree


def test_servers_in_pods_of_this_node_are_found_by_their_pods_address(pods):
    urls = {"a": "http://10.244.0.2:8000/metrics", "b": "http://10.244.0.3:8000/metrics"}
    owners = read_host(pods.root, [201, 301], urls).owners
    assert owners == {201: Owner("a", "0"), 301: Owner("b", "1")}


def test_loopback_is_ours_and_never_a_pods(pods):
    host = read_host(pods.root, [201, 301], URL)
    assert host.owners == {}


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


def test_a_parent_loop_ends(tree):
    tree.process(99, 99, "odd")
    assert read_host(tree.root, [99], URL).owners == {}


def test_a_server_that_dies_is_noticed_at_once(tree):
    reader = HostReader(tree.root)
    assert reader.read([12], URL, 0.0).owners == {12: Owner("t", None)}
    shutil.rmtree(tree.root / "10")
    (tree.root / "11" / "stat").write_text("11 (VLLM::EngineCor) S 1 1 1 0 -1\n")
    host = reader.read([12], URL, 10.0)
    assert (host.owners, host.orphans) == ({}, {12})


def test_a_socket_that_opens_later_is_noticed_within_a_minute(tree):
    reader = HostReader(tree.root)
    later = {"u": "http://127.0.0.1:8001"}
    assert reader.read([12], later, 0.0).owners == {}
    tree.listen("127.0.0.1", 8001, 499)
    assert reader.read([12], later, REREAD_SECONDS - 1.0).owners == {}
    assert reader.read([12], later, REREAD_SECONDS).owners == {12: Owner("u", None)}


def test_another_target_is_looked_for_at_once(tree):
    reader = HostReader(tree.root)
    assert reader.read([12], {}, 0.0).owners == {}
    assert reader.read([12], URL, 1.0).owners == {12: Owner("t", None)}


def test_our_own_proc_is_readable():
    host = read_host(Path("/proc"), [os.getpid()], {})
    assert (host.owners, host.complete) == ({}, True)
