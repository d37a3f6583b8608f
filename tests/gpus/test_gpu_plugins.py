"""Every GPU source that is there keeps the contract; a new file is tested without a word here."""

import inspect
from pathlib import Path

import pytest

from kvcache_exporter import gpus
from kvcache_exporter.model import Problem

REFUSED = Problem("unreachable", "connection refused")


def test_every_file_without_underscore_is_a_source():
    folder = Path(gpus.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if not path.name.startswith("_")}
    assert set(gpus.plugins()) == files
    assert files >= {"nvml", "dcgm"}


@pytest.mark.parametrize("name", gpus.plugins())
def test_every_option_has_a_default(name):
    assert inspect.Parameter.empty not in gpus.options()[name].values()


def test_by_default_only_this_hosts_gpus_are_asked():
    sources = gpus.open_sources(lambda _: REFUSED, {})
    assert [source.name for source in sources] == ["nvml"]


@pytest.mark.parametrize("answer", [REFUSED, b"", b"<html>", b"\xff\xfe", b"DCGM_FI_DEV_FB_USED"])
def test_no_source_raises_or_claims_a_gpu_it_has_not_seen(answer):
    settings = {"nvml": {"enabled": False}, "dcgm": {"urls": ("http://127.0.0.1:9400/metrics",)}}
    for source in gpus.open_sources(lambda _: answer, settings):
        reading = source.read(1000.0)
        assert (reading.source, reading.up, reading.gpus) == (source.name, False, ())
        assert reading.problem is not None
        source.close()
