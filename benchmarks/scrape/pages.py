"""The pages that targets serve: as recorded, with names of real size, and of eight engines."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path

from kvcache_exporter.engines import vllm

RECORDED = (
    Path(__file__).parents[2] / "tests" / "data" / "pages" / "vllm-0.32.0-cpu-after-load.prom"
)
MODEL_NAME = b"meta-llama/Llama-3.3-70B-Instruct-FP8-dynamic-2026-08-q4"
HANDLERS = 10
ENGINES = 8
_MOVING: Mapping[bytes, re.Pattern[bytes]] = {
    name: re.compile(rb"(?m)^(vllm:" + series + rb"\{[^}]*\}|" + plain + rb") [^ \n]*$")
    for name, series, plain in (
        (b"counter", rb"\w+_(?:total|sum|count)", rb"http_requests_total\{[^}]*\}"),
        (b"running", rb"num_requests_running", rb"-"),
        (b"usage", rb"kv_cache_usage_perc", rb"-"),
    )
}
_BLOCKS = re.compile(rb'num_gpu_blocks="(\d+)"')


def pages() -> Mapping[str, bytes]:
    """Return the pages by a name for people."""
    recorded = RECORDED.read_bytes()
    real_size = _more_handlers(recorded.replace(b'"tiny"', b'"' + MODEL_NAME + b'"'))
    return {
        "recorded, 1 engine": recorded,
        "real-size names, 1 engine": real_size,
        "real-size names, 8 engines": _more_engines(real_size),
    }


def filtered(page: bytes) -> bytes:
    """Cut a page to what vLLM answers when it is asked for the wanted names only."""
    wanted = {*(b"vllm:%b" % name.encode() for name in vllm.NAMES)}
    wanted |= {name.encode() for name in vllm.PLAIN}
    names = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
    kept = []
    for line in page.splitlines(keepends=True):
        name = names.match(line)
        if name is not None and name[0] in wanted:
            kept.append(line)
    return b"".join(kept)


def _more_handlers(page: bytes) -> bytes:
    lines = []
    for line in page.splitlines(keepends=True):
        lines.append(line)
        if b'handler="/v1/completions"' in line:
            lines += [
                line.replace(b"/v1/completions", b"/v1/handler/%d" % number)
                for number in range(1, HANDLERS)
            ]
    return b"".join(lines)


def _more_engines(page: bytes) -> bytes:
    lines = []
    for line in page.splitlines(keepends=True):
        lines.append(line)
        if b'engine="0"' in line and not line.startswith(b"#"):
            lines += [
                line.replace(b'engine="0"', b'engine="%d"' % number) for number in range(1, ENGINES)
            ]
    return b"".join(lines)


def samples(page: bytes) -> int:
    """Count the samples of a page."""
    return sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))


class Busy:
    """The page of an engine at work: its counters grow, its load and usage move."""

    def __init__(self, page: bytes) -> None:
        template = page.replace(b"%", b"%%")
        for name, series in _MOVING.items():
            template = series.sub(rb"\1 %(" + name + rb")b", template)
        blocks = _BLOCKS.search(page)
        self._template, self._blocks = template, int(blocks[1]) - 1 if blocks else 1

    def at(self, step: int) -> bytes:
        """Return the page at a moment; later ones have larger counters."""
        chance = random.Random(step)
        running = chance.randrange(8) if step % 50 else 0  # and is idle now and then
        used = min(running * chance.randrange(1, 20), self._blocks)
        return self._template % {
            b"counter": b"%d.0" % (step * 7),
            b"running": b"%d.0" % running,
            b"usage": repr(used / self._blocks).encode(),
        }
