"""GPU sources: every module here with a ``sources`` function is one; its file is its registration.

``sources(fetch, **options)`` returns what is to be read (nothing when it is switched off); its
keyword arguments are the options an operator may set under the module's name. ``fetch(url)`` gets
a page and answers with its body or with the problem that kept it. A source never raises, and
never holds a cycle longer than its own deadline; it answers for a GPU it cannot read with a
``GpuReading`` that carries a ``Problem``. Modules that start with an underscore are parts of one.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from kvcache_exporter.model import GpuSourceReading, Problem
from kvcache_exporter.schema import suggestion
from kvcache_exporter.urls import url_mistake

Fetch = Callable[[str], bytes | Problem]


class Source(Protocol):
    """One place that GPU readings come from."""

    name: str
    """``source`` label of its metrics."""

    def read(self, now: float) -> GpuSourceReading:
        """Read every GPU it knows; *now* is Unix seconds on the pipeline's clock."""

    def close(self) -> None:
        """Let go of everything, without waiting for a call that hangs."""


@cache
def plugins() -> Mapping[str, Callable[..., list[Source]]]:
    """Return the ``sources`` function of every plug-in in this folder, by module name."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return MappingProxyType({name: module.sources for name, module in modules.items()})


def options() -> dict[str, dict[str, Any]]:
    """Every option of every plug-in with its default: what a configuration may say."""
    return {
        name: {
            option.name: option.default
            for option in inspect.signature(sources).parameters.values()
            if option.kind is inspect.Parameter.KEYWORD_ONLY
        }
        for name, sources in plugins().items()
    }


def mistakes(settings: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Check an operator's *settings* against ``options``: (path, text) for each mistake."""
    known = options()
    for name, given in settings.items():
        if name not in known:
            yield f"gpus.{name}", f"unknown GPU source{suggestion(name, known)}"
        elif not isinstance(given, Mapping):
            yield f"gpus.{name}", f"must be a mapping of {', '.join(known[name])}"
        else:
            for key, value in given.items():
                if (text := _option_mistake(str(key), value, known[name])) is not None:
                    yield f"gpus.{name}.{key}", text


def _option_mistake(key: str, value: Any, known: Mapping[str, Any]) -> str | None:
    if key not in known:
        return f"unknown key{suggestion(key, known)}"
    default = known[key]
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return "must be a list of texts"
        wrong = (text for item in value if key == "urls" and (text := url_mistake(item)))
        return next(wrong, None)
    numeric = isinstance(default, float) and isinstance(value, int) and value is not True
    if isinstance(value, type(default)) or numeric:
        return None
    return f"must be like {default!r}, not {value!r}"


def open_sources(fetch: Fetch, settings: Mapping[str, Mapping[str, Any]]) -> list[Source]:
    """Open every source; *settings* holds options by plug-in name, a missing name its defaults."""
    return [
        source
        for name, sources in plugins().items()
        for source in sources(fetch, **settings.get(name, {}))
    ]
