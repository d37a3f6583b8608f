"""Who owns a process on a GPU, on trees recorded on two H200s and on trees made of their traps."""

import pytest
from proc_tree import API, ProcTree, build, pids

from kvcache_exporter.hosts.processes import (
    REREAD_SECONDS,
    HostReader,
    Owner,
    read_host,
)

URL = {"t": "http://127.0.0.1:8000/metrics"}


def test_tensor_parallel_workers_belong_to_the_one_engine(tmp_path):
    host = read_host(build(tmp_path, "tensor parallel").root, pids("tensor parallel"), URL)
    assert host.owners == {1179: Owner("t", None), 1180: Owner("t", None)}
    assert (host.orphans, host.complete, host.problems) == (frozenset(), True, {})


def test_data_parallel_workers_belong_each_to_its_own_engine(tmp_path):
    host = read_host(build(tmp_path, "data parallel").root, pids("data parallel"), URL)
    assert host.owners == {2753: Owner("t", "0"), 2748: Owner("t", "1")}
    assert host.orphans == frozenset()


def test_an_engine_core_without_worker_owns_its_memory_itself(tree):
    assert read_host(tree.root, [11], URL).owners == {11: Owner("t", None)}


def test_a_server_that_runs_its_engine_in_its_own_process_owns_its_memory(tree):
    assert read_host(tree.root, [10], URL).owners == {10: Owner("t", None)}


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


def test_a_parent_loop_ends(tree):
    tree.process(99, 99, "odd")
    assert read_host(tree.root, [99], URL).owners == {}


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
