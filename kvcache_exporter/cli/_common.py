"""What several commands share: failing with all mistakes at once, and logging."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from kvcache_exporter.schema import OperatorError

BAD_CONFIGURATION = 2


def fail(lines: tuple[str, ...] | list[str], code: int = BAD_CONFIGURATION) -> NoReturn:
    """Print every line to stderr and leave with *code*."""
    for line in lines:
        click.echo(line, err=True)
    sys.exit(code)


@contextmanager
def operator_errors() -> Iterator[None]:
    """Turn an operator's mistakes into lines on stderr and exit code 2."""
    try:
        yield
    except OperatorError as error:
        fail(error.lines)


def log_to_stderr(level: str = "INFO") -> None:
    """Log in the logfmt that Prometheus' own tools use."""
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format='time=%(asctime)s.%(msecs)03d level=%(levelname)s msg="%(message)s"',
        datefmt="%Y-%m-%dT%H:%M:%S",
    )


vllm_url: Callable[[Callable[..., object]], Callable[..., object]] = click.option(
    "--vllm-url", "vllm_urls", multiple=True, metavar="URL", help="A vLLM server; repeatable."
)
