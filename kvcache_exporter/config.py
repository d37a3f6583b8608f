"""What the operator decides: one YAML file, or flags for the simplest case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kvcache_exporter import gpus
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Credentials, KvModel, Role, Target
from kvcache_exporter.pool_size import kv_model
from kvcache_exporter.schema import OperatorError, build, parse_yaml
from kvcache_exporter.sd_config import FileSdConfig, HttpSdConfig, KubernetesConfig
from kvcache_exporter.urls import (
    DEFAULT_PORT,
    address_mistake,
    bare,
    metrics_url,
    target_name,
    url_mistake,
)

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = frozenset({"target", "engine", "state", "uuid", "instance", "job"})


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """One vLLM server named by hand."""

    url: str
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    role: Role = Role.BOTH
    hold_seconds: float | None = None
    gpu_uuids: tuple[str, ...] = ()
    num_gpu_blocks: int | None = None
    model: KvModel | None = None
    auth: str | None = None
    audit_url: str | None = None

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Check what the types cannot."""
        if (text := url_mistake(self.url)) is not None:
            yield "url", text
        for name in self.labels:
            if (text := label_mistake(name)) is not None:
                yield f"labels.{name}", text
        if self.hold_seconds is not None and self.hold_seconds < 0:
            yield "hold_seconds", f"must be 0 or more, not {self.hold_seconds:g}"
        if self.audit_url is not None and (text := url_mistake(self.audit_url)) is not None:
            yield "audit_url", text
        if self.num_gpu_blocks is not None and self.num_gpu_blocks < 2:
            yield "num_gpu_blocks", "must be what vLLM logs as '# GPU blocks', at least 2"
        if self.model is not None:
            yield from ((f"model.{key}", text) for key, text in kv_model.mistakes(self.model))


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; only ``load`` and ``from_flags`` make one outside tests."""

    listen_address: str = f"127.0.0.1:{DEFAULT_PORT}"
    interval_seconds: float = 10.0
    timeout_seconds: float | None = None
    max_body_bytes: int = 8 * 1024 * 1024
    max_engines: int = 10_000
    filtered_route: bool = True
    enable_reload: bool = False
    state_file: str | None = None
    web_config_file: str | None = None
    targets: tuple[TargetConfig, ...] = ()
    file_sd: tuple[FileSdConfig, ...] = ()
    http_sd: tuple[HttpSdConfig, ...] = ()
    kubernetes: tuple[KubernetesConfig, ...] = ()
    shard: str | None = None
    """``i/n``: of n exporters over the same targets this is the i-th, from 0."""
    auth: Mapping[str, Credentials] = field(default_factory=dict)
    gpus: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options by GPU source, under the name of its file in ``gpus/``."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)

    @property
    def scrape_timeout_seconds(self) -> float:
        """Total deadline of one scrape: as configured, else 80 % of the interval, at most 5 s."""
        return self.timeout_seconds or min(0.8 * self.interval_seconds, 5.0)

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Check what spans several keys."""
        if not 1.0 <= self.interval_seconds <= 3600.0:
            yield "interval_seconds", f"must be 1 to 3600, not {self.interval_seconds:g}"
        if self.timeout_seconds is not None and not 0 < self.timeout_seconds <= (
            self.interval_seconds
        ):
            yield "timeout_seconds", "must be more than 0 and at most interval_seconds"
        if not 1024 <= self.max_body_bytes <= 2**30:
            yield "max_body_bytes", f"must be 1024 to {2**30}, not {self.max_body_bytes}"
        if self.max_engines < 1:
            yield "max_engines", f"must be at least 1, not {self.max_engines}"
        if (text := address_mistake(self.listen_address)) is not None:
            yield "listen_address", text
        if self.shard is not None and shard_of(self.shard) is None:
            yield "shard", f"must be i/n with 0 <= i < n, such as 0/3, not {self.shard!r}"
        yield from self._names_twice()
        yield from self._unknown_auth()
        for name, one in self.auth.items():
            if (text := _credentials_mistake(one)) is not None:
                yield f"auth.{name}", text
        for key, value in asdict(self.judge).items():
            if isinstance(value, int | float) and value < 0:
                yield f"judge.{key}", f"must be 0 or more, not {value:g}"
        yield from gpus.mistakes(self.gpus)

    def _names_twice(self) -> Iterable[tuple[str, str]]:
        seen: dict[str, int] = {}
        for position, target in enumerate(self.targets):
            name = target.name or target_name(target.url)
            if name in seen:
                yield (
                    f"targets[{position}]",
                    f"is called {name!r} like targets[{seen[name]}]; give it another name",
                )
            seen.setdefault(name, position)

    def _unknown_auth(self) -> Iterable[tuple[str, str]]:
        uses = [(f"targets[{i}].auth", one.auth) for i, one in enumerate(self.targets)]
        uses += [(f"file_sd[{i}].auth", one.auth) for i, one in enumerate(self.file_sd)]
        uses += [(f"http_sd[{i}].auth", one.auth) for i, one in enumerate(self.http_sd)]
        uses += [(f"kubernetes[{i}].auth", one.auth) for i, one in enumerate(self.kubernetes)]
        for path, name in uses:
            if name is not None and name not in self.auth:
                known = ", ".join(sorted(self.auth)) or "none"
                yield path, f"{name!r} is not defined under auth (defined: {known})"


def shard_of(text: str) -> tuple[int, int] | None:
    """Read ``i/n``; None for anything else."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if match is None or not int(match[1]) < int(match[2]):
        return None
    return int(match[1]), int(match[2])


def load(path: Path) -> Config:
    """Read a configuration file; raise OperatorError with all that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise OperatorError([f"{path}: cannot be read: {reason}"]) from None
    return build(Config, parse_yaml(text, path.name), path.name)


def with_flags(config: Config, urls: Sequence[str], **flags: object) -> Config:
    """Lay command line flags over *config*; None leaves a key as it is."""
    given = {key: value for key, value in flags.items() if value is not None}
    mistakes = [f"--vllm-url {bare(u)}: {text}" for u in urls if (text := url_mistake(u))]
    if mistakes:
        raise OperatorError(mistakes)
    names = {name: getattr(config, name) for name in config.__dataclass_fields__}
    targets = (*config.targets, *(TargetConfig(url) for url in dict.fromkeys(urls)))
    made = Config(**{**names, **given, "targets": targets})
    if found := [f"{_flag(key) if key in given else key}: {text}" for key, text in made.mistakes()]:
        raise OperatorError(found)
    return made


def _flag(key: str) -> str:
    return "--" + key.removesuffix("_seconds").replace("_", "-")


def static_targets(config: Config) -> tuple[Target, ...]:
    """Make targets of those that the operator named."""
    return tuple(
        Target(
            name=one.name or target_name(one.url),
            url=metrics_url(one.url),
            labels=tuple(sorted(one.labels.items())),
            role=one.role,
            hold_seconds=one.hold_seconds,
            gpu_uuids=one.gpu_uuids,
            auth=one.auth,
            num_gpu_blocks=one.num_gpu_blocks,
            model=one.model,
            audit_url=one.audit_url,
        )
        for one in config.targets
    )


def _credentials_mistake(one: Credentials) -> str | None:
    """Say what is missing or too much; half a password would fail at each scrape without a word."""
    if (one.username is None) != (one.password_file is None):
        return "username and password_file belong together; give both"
    if (one.cert_file is None) != (one.key_file is None):
        return "cert_file and key_file belong together; give both"
    if one.bearer_file is not None and one.username is not None:
        return "has a bearer_file and a username; a server takes one of them"
    return None


def label_mistake(name: str) -> str | None:
    """Say why *name* cannot be a label of ours, if it cannot."""
    if _LABEL.fullmatch(name) is None or name.startswith("__"):
        return "is not a label name; use letters, digits and _ and do not start with __"
    if name in _RESERVED:
        return "is a label that the exporter or Prometheus sets itself; take another name"
    return None
