"""What one simulated vLLM server answers, path by path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import parse_qs, urlsplit

from .engine import Engine
from .page import Layout, histograms, render

VERSION = "0.32.0"
TEXT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer without its framing."""

    status: int
    content_type: str
    body: bytes


class Site:
    """One server and its data-parallel engines, as started with some options."""

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        multiprocess: bool = False,
        log_stats: bool = True,
        kv_cache_metrics: bool = False,
    ) -> None:
        self.engines = tuple(engines)
        self._options = (multiprocess, log_stats, kv_cache_metrics)

    def answer(self, url: str) -> Answer:
        """Answer a GET as vLLM does."""
        parts = urlsplit(url)
        match parts.path:
            case "/metrics":
                return Answer(200, TEXT_TYPE, self.page())
            case "/metrics/":  # the mounted application behind the slash honours the filter
                return Answer(200, TEXT_TYPE, self.page(_names(parts.query)))
            case "/health":
                return Answer(200, TEXT_TYPE, b"")
            case "/version":
                return _json(200, {"version": VERSION})
            case "/v1/models":
                return _json(200, {"object": "list", "data": [self._model()]})
            case _:
                return _json(404, {"detail": "Not Found"})

    def page(self, names: frozenset[str] = frozenset()) -> bytes:
        """Print the metrics page, or only the samples with these names."""
        layout = replace(self._layout(), names=names)
        needed = histograms(layout)
        return render(layout, [one.metrics.page_values(needed) for one in self.engines])

    def _layout(self) -> Layout:
        pools = [engine.scheduler.cache.pool.num_gpu_blocks for engine in self.engines]
        engines = [
            engine.labels(str(rank), pool_label=sum(pools))
            for rank, engine in enumerate(self.engines)
        ]
        multiprocess, log_stats, kv_cache_metrics = self._options
        templates = self.engines[0].config.templates
        return Layout(tuple(engines), templates, multiprocess, log_stats, kv_cache_metrics)

    def _model(self) -> dict[str, object]:
        name = self.engines[0].config.model_name
        return {"id": name, "object": "model", "owned_by": "vllm", "root": name}


@lru_cache(maxsize=64)
def _names(query: str) -> frozenset[str]:
    return frozenset(parse_qs(query).get("name[]", []))


def _json(status: int, value: object) -> Answer:
    return Answer(status, JSON_TYPE, json.dumps(value, separators=(",", ":")).encode())
