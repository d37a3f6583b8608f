"""The Xid gauge never falls back, so a value above 0 says nothing and a change says all."""

import pytest

from kvcache_exporter.hosts.xid import TOLD_SECONDS, XidWatch
from kvcache_exporter.model import GpuReading


def codes(*values, every=60.0):
    """The problems after each of a row of codes."""
    watch = XidWatch()
    gpus = [(GpuReading("GPU-a", "dcgm", xid=value),) for value in values]
    return [watch.observe(gpu, every * number) for number, gpu in enumerate(gpus)]


def test_an_old_code_found_at_the_start_is_no_news():
    assert codes(79, 79, 79) == [(), (), ()]


def test_a_new_code_is_news_until_it_is_old():
    told = codes(0, 79, *[79] * 30)
    assert [bool(problems) for problems in told].index(True) == 1
    assert "Xid 79" in told[1][0].text
    assert sum(map(bool, told)) == TOLD_SECONDS / 60.0


@pytest.mark.parametrize(("code", "advice"), [(31, "the program"), (79, "drain the node")])
def test_a_programs_fault_is_told_from_the_gpus(code, advice):
    assert advice in codes(0, code)[1][0].text


def test_a_code_that_is_not_told_is_neither_old_nor_new():
    assert codes(None, None, 0, None, 0) == [(), (), (), (), ()]
