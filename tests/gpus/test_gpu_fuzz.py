"""Whatever a page, a driver or /proc holds, reading it never raises and never invents a GPU."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from proc_tree import ProcTree

from kvcache_exporter.gpus._nvml_report import counted, read_report
from kvcache_exporter.gpus.dcgm import NAMES, read_page
from kvcache_exporter.hosts.processes import read_host
from kvcache_exporter.model import Problem
from kvcache_exporter.samples import Parser

PAGE = (Path(__file__).parents[1] / "data" / "gpus" / "dcgm-exporter.prom").read_bytes()
UUID = "GPU-00000000-0000-0000-0000-00000000000a"


@given(st.integers(0, len(PAGE)), st.integers(0, 40), st.binary(max_size=40))
def test_a_damaged_dcgm_page_is_read_or_refused(at, cut, put):
    samples = Parser((), NAMES).parse(PAGE[:at] + put + PAGE[at + cut :])
    if isinstance(samples, Problem):
        return
    reading = read_page(samples, 1000.0)
    whole = [gpu for gpu in reading.gpus if gpu.parent_uuid is None]
    assert len(whole) <= reading.seen
    for gpu in reading.gpus:
        assert gpu.used_bytes is None or gpu.used_bytes >= 0


sizes = st.none() | st.integers(0, 1 << 62)
errors = st.lists(
    st.fixed_dictionaries(
        {"call": st.just("c"), "code": st.none() | st.integers(0, 999), "text": st.text()}
    ),
    max_size=3,
)
memory = st.fixed_dictionaries({}, optional=dict.fromkeys(("total", "used", "free"), sizes))
devices = st.fixed_dictionaries(
    {
        "index": st.integers(0, 15),
        "uuid": st.none() | st.sampled_from(["GPU-a", "GPU-b", "MIG-c"]),
        "errors": errors,
    },
    optional={
        "parent": st.none() | st.sampled_from(["GPU-a", "GPU-b"]),
        "memory": st.none() | memory,
        "processes": st.none() | st.lists(st.tuples(st.integers(1, 99), sizes)),
    },
)


@given(st.lists(st.lists(devices, max_size=4), max_size=4))
def test_gpus_that_come_and_go_keep_seen_within_expected(reports):
    known = {}
    for number, devices_now in enumerate(reports):
        report = {"driver_version": None, "devices": devices_now}
        reading = counted(read_report(report, float(number)), known.values())
        known = {gpu.uuid: gpu for gpu in reading.gpus if gpu.parent_uuid is None}
        assert 0 <= reading.seen <= reading.expected


lines = st.lists(st.text(max_size=120), max_size=5).map("\n".join)


@given(lines, lines, lines, st.text(max_size=60))
def test_a_strange_proc_is_read_without_a_word(tmp_path_factory, tcp, trie, six, command):
    tree = ProcTree(tmp_path_factory.mktemp("proc"))
    (tree.root / "net").mkdir()
    for name, text in (("tcp", tcp), ("fib_trie", trie), ("if_inet6", six)):
        (tree.root / "net" / name).write_text(text)
    tree.process(7, 1, "x")
    (tree.root / "7" / "cmdline").write_text(command)
    host = read_host(tree.root, [7], {"t": "http://127.0.0.1:8000/metrics"})
    assert host.owners == {}
