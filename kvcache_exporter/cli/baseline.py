"""Keep a healthy picture of a server and compare with it later."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from kvcache_exporter.cli._common import fail, operator_errors
from kvcache_exporter.config import Config, load, with_flags

_REPETITIONS = click.option(
    "--repetitions", type=click.IntRange(1, 100), default=7, show_default=True
)
_MODEL = click.option("--model", help="Model name; default: the first one served.")
_CONFIG = click.option(
    "--config", "path", type=click.Path(path_type=Path), help="Credentials, GPU sources."
)


@click.group(epilog="Example: kvcache-exporter baseline save http://127.0.0.1:8000 --out good.yml")
def command() -> None:
    """Keep a healthy picture of a server and compare with it later.

    Idle and used blocks, hit ratio, latency of a fixed request, GPU and host memory.
    """


@command.command(
    epilog="Example: kvcache-exporter baseline save http://127.0.0.1:8000 --out good.yml"
)
@click.argument("url")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE")
@_MODEL
@_REPETITIONS
@_CONFIG
def save(url: str, out: Path, model: str | None, repetitions: int, path: Path | None) -> None:
    """Measure the server at URL and keep the picture in FILE."""
    from kvcache_exporter.baseline import store
    from kvcache_exporter.baseline.measure import measure

    config, base = _target(url, path)
    picture = measure(config, base, model, repetitions)
    if picture.engines is None and picture.total_seconds is None:
        fail([f"{base}: nothing could be measured; see: kvcache-exporter check {base}"], 3)
    try:
        store.save(picture, out)
    except OSError as error:
        fail([f"{out}: cannot be written: {error.strerror}"])
    click.echo(f"saved in {out}; later: kvcache-exporter baseline compare {base} {out}")


@command.command(epilog="Example: kvcache-exporter baseline compare http://127.0.0.1:8000 good.yml")
@click.argument("url")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_MODEL
@_REPETITIONS
@_CONFIG
def compare(
    url: str, file: Path, as_json: bool, model: str | None, repetitions: int, path: Path | None
) -> None:
    """Measure the server at URL again and say what changed since FILE.

    Exit code: 0 same, 1 drifted, 2 leaking, 3 cannot tell.
    """
    from kvcache_exporter.baseline import store
    from kvcache_exporter.baseline.compare import Weight
    from kvcache_exporter.baseline.compare import compare as changes_between
    from kvcache_exporter.baseline.measure import measure

    with operator_errors():
        before = store.read(file)
    config, base = _target(url, path)
    changes = changes_between(before, measure(config, base, model, repetitions))
    if not changes:
        fail([f"{base}: nothing to compare; see: kvcache-exporter check {base}"], 3)
    if as_json:
        rows = [asdict(one) | {"weight": one.weight.name.lower()} for one in changes]
        click.echo(json.dumps({"since": before.taken, "changes": rows}, indent=2))
    else:
        for one in changes:
            mark = {Weight.SAME: "ok", Weight.DRIFTED: "warn", Weight.LEAKING: "BAD"}[one.weight]
            click.echo(f"  {mark:4} {one.what:16} {one.text}")
    sys.exit(max(one.weight for one in changes))


def _target(url: str, path: Path | None) -> tuple[Config, str]:
    with operator_errors():
        config = load(path) if path is not None else Config()
        config = with_flags(config, [url], interval_seconds=1.0)
    return config, url.rstrip("/").removesuffix("/v1").removesuffix("/metrics")
