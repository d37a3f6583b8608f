"""Pages of a dcgm-exporter, with everything that makes them misleading."""

from pathlib import Path

import pytest

from kvcache_exporter.gpus.dcgm import MIB, NAMES, DcgmSource, read_page, sources
from kvcache_exporter.hosts.frozen import FROZEN_READS, FROZEN_SECONDS, FrozenWatch
from kvcache_exporter.model import Problem
from kvcache_exporter.samples import Parser

PAGE = (Path(__file__).parents[1] / "data" / "gpus" / "dcgm-exporter.prom").read_bytes()
UUID = "GPU-00000000-0000-0000-0000-00000000000a"


def read(text, now=1000.0):
    body = text if isinstance(text, bytes) else text.encode()
    return read_page(Parser((), NAMES).parse(body), now)


def line(name, value, uuid="GPU-a", **labels):
    pairs = {"gpu": "0", "UUID": uuid, **labels}
    inside = ",".join(f'{key}="{label}"' for key, label in pairs.items())
    return f"DCGM_FI_DEV_{name}{{{inside}}} {value}\n"


def test_sizes_are_mebibytes():
    (gpu,) = read(PAGE).gpus
    assert gpu.used_bytes == 128_403 * MIB
    assert gpu.free_bytes == 14_753 * MIB
    assert gpu.reserved_bytes == 616 * MIB


def test_the_total_is_the_sum_of_its_three_parts_where_it_is_not_printed():
    (gpu,) = read(PAGE).gpus
    assert gpu.total_bytes == (128_403 + 14_753 + 616) * MIB
    (without_reserved,) = read(line("FB_USED", 1) + line("FB_FREE", 2)).gpus
    assert without_reserved.total_bytes is None
    (printed,) = read(line("FB_USED", 1) + line("FB_TOTAL", 9)).gpus
    assert printed.total_bytes == 9 * MIB


def test_identity_and_workload_come_from_the_labels():
    (gpu,) = read(PAGE).gpus
    assert (gpu.uuid, gpu.index, gpu.model, gpu.source) == (UUID, 0, "NVIDIA H200", "dcgm")
    assert gpu.driver_version == "580.95.05"
    assert (gpu.namespace, gpu.pod, gpu.container) == ("serving", "llama-0", "vllm")
    assert gpu.processes is None


def test_both_spellings_of_the_labels_are_read():
    text = PAGE.decode().replace("UUID=", "uuid=").replace("Hostname=", "hostname=")
    assert read(text).gpus == read(PAGE).gpus


def test_the_workload_of_a_federated_page_is_in_the_exported_labels():
    labels = {"pod": "dcgm-exporter-x", "namespace": "gpu-operator", "container": "exporter"}
    exported = {"exported_pod": "p", "exported_namespace": "n", "exported_container": "c"}
    (gpu,) = read(line("FB_USED", 1, **labels, **exported)).gpus
    assert (gpu.namespace, gpu.pod, gpu.container) == ("n", "p", "c")
    (idle,) = read(line("FB_USED", 1, **labels, exported_pod="")).gpus
    assert idle.pod is None


def test_a_gpu_that_several_pods_share_names_them_all_and_is_counted_once():
    text = line("FB_USED", 5, pod="p", namespace="n") + line("FB_USED", 5, pod="q", namespace="n")
    reading = read(text)
    (gpu,) = reading.gpus
    assert gpu.pods == (("n", "p"), ("n", "q"))
    assert (gpu.pod, gpu.used_bytes, reading.seen) == (None, 5 * MIB, 1)


@pytest.mark.parametrize(
    "blank",
    [
        *range(2147483632, 2147483636),
        *range(9223372036854775792, 9223372036854775796),
        *range(140737488355328, 140737488355332),
        *("NaN", "+Inf", -1),
    ],
)
def test_a_blank_marker_is_not_a_size(blank):
    (gpu,) = read(line("FB_USED", blank) + line("FB_FREE", 7)).gpus
    assert (gpu.used_bytes, gpu.free_bytes) == (None, 7 * MIB)


def test_zero_is_a_size():
    assert read(line("FB_USED", 0)).gpus[0].used_bytes == 0


def test_xid_is_the_last_error_code_and_blank_is_none():
    assert read(line("FB_USED", 0) + line("XID_ERRORS", 79)).gpus[0].xid == 79
    assert read(line("FB_USED", 0) + line("XID_ERRORS", 2147483632)).gpus[0].xid is None


def test_slices_of_a_gpu_carry_its_memory_and_are_not_counted_as_gpus():
    whole = line("FB_USED", 90) + line("POWER_USAGE", 300)
    first = line("FB_USED", 40, GPU_I_ID="3", GPU_I_PROFILE="3g.71gb", pod="p", namespace="n")
    second = line("FB_USED", 50, GPU_I_ID="5", GPU_I_PROFILE="3g.71gb")
    reading = read(whole + first + second)
    parent, three, five = reading.gpus
    assert sum(gpu.used_bytes or 0 for gpu in reading.gpus) == 90 * MIB
    assert (parent.parent_uuid, three.parent_uuid, five.parent_uuid) == (None, "GPU-a", "GPU-a")
    assert (three.instance_id, three.pod, five.pod) == (3, "p", None)
    assert (reading.expected, reading.seen) == (1, 1)


def test_a_page_of_something_else_is_down_with_the_next_step():
    reading = read("node_load1 3\n")
    assert (reading.up, reading.gpus) == (False, ())
    assert reading.problem.code == "no_dcgm_series"
    assert "dcgm-exporter" in reading.problem.text


def test_each_url_is_a_source_of_its_own():
    found = sources(lambda _: PAGE, urls=("http://a:9400/metrics", "http://b:9400/metrics"))
    assert [source.name for source in found] == ["dcgm", "dcgm"]


def test_an_exporter_that_does_not_answer_is_down_and_keeps_what_it_is_expected_to_see():
    answers = [PAGE, Problem("unreachable", "connection refused: is it running?"), b"<html>\n"]
    source = DcgmSource(lambda _: answers.pop(0), "http://node-7:9400/metrics")
    assert source.read(0.0).up
    refused = source.read(10.0)
    assert (refused.up, refused.expected, refused.seen) == (False, 1, 0)
    assert (refused.gpus, refused.problem.code) == ((), "unreachable")
    assert "http://node-7:9400/metrics" in refused.problem.text
    assert source.read(20.0).problem.code == "not_metrics"
    source.close()


def test_a_gpu_that_leaves_the_page_stays_expected():
    pages = [line("FB_USED", 1) + line("FB_USED", 1, "GPU-b"), line("FB_USED", 1)]
    source = DcgmSource(lambda _: pages.pop(0).encode(), "http://d")
    source.read(0.0)
    reading = source.read(10.0)
    assert (reading.expected, reading.seen) == (2, 1)


def frozen_after(pages, moved=True):
    """How many scrapes, 30 s apart, until the source is called frozen; None = never."""
    watch = FrozenWatch()
    for number, page in enumerate(pages):
        reading = watch.observe(read(page, 30.0 * number), moved=moved)
        if not reading.up:
            assert reading.problem.code == "dcgm_frozen"
            assert "nv-hostengine" in reading.problem.text
            assert [gpu.used_bytes for gpu in reading.gpus] == [None]
            return number
    return None


def test_a_page_that_repeats_itself_while_the_gpu_works_is_frozen():
    assert frozen_after([PAGE] * 20) == FROZEN_READS
    assert FROZEN_READS * 30.0 >= FROZEN_SECONDS


def test_a_page_that_repeats_itself_while_nothing_works_is_not_called_frozen():
    assert frozen_after([PAGE] * 50, moved=False) is None


def test_one_watt_of_difference_shows_that_the_page_lives():
    other = PAGE.replace(b"431.217", b"431.218")
    assert frozen_after([PAGE, other] * 20) is None


def test_constant_memory_alone_does_not_make_a_page_frozen():
    assert frozen_after([line("FB_USED", 128_403)] * 50) is None


def test_a_page_that_thaws_is_up_again():
    watch = FrozenWatch()
    readings = [watch.observe(read(PAGE, 30.0 * n), moved=True) for n in range(10)]
    assert not readings[-1].up
    thawed = read(PAGE.replace(b"431.217", b"80.1"), 300.0)
    assert watch.observe(thawed, moved=True) == thawed
