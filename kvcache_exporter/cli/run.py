"""Scrape vLLM servers, judge them and serve the result to Prometheus."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from kvcache_exporter.cli._common import fail, log_to_stderr, operator_errors, vllm_url
from kvcache_exporter.cli._report import Reporter
from kvcache_exporter.config import Config, load, with_flags
from kvcache_exporter.schema import OperatorError


@click.command(
    epilog="Example: kvcache-exporter run --vllm-url http://127.0.0.1:8000 --interval 10"
)
@vllm_url
@click.option("--config", "path", type=click.Path(path_type=Path), help="YAML configuration file.")
@click.option("--listen-address", metavar="HOST:PORT", help="Default 127.0.0.1:10158.")
@click.option("--interval", "interval_seconds", type=float, metavar="SECONDS", help="Default 10.")
@click.option("--web-config-file", metavar="FILE", help="TLS and users of our own port.")
@click.option("--state-file", metavar="FILE", help="Where the history survives a restart.")
@click.option("--shard", metavar="I/N", help="Take the I-th of N parts of the targets, from 0.")
@click.option(
    "--enable-reload",
    is_flag=True,
    default=None,
    help="Allow POST /-/reload (SIGHUP always works).",
)
def command(
    vllm_urls: tuple[str, ...],
    path: Path | None,
    listen_address: str | None,
    interval_seconds: float | None,
    web_config_file: str | None,
    state_file: str | None,
    shard: str | None,
    enable_reload: bool | None,
) -> None:
    """Scrape vLLM servers, judge them and serve the result to Prometheus."""

    def configured() -> Config:
        return with_flags(
            load(path) if path is not None else Config(),
            vllm_urls,
            listen_address=listen_address,
            interval_seconds=interval_seconds,
            web_config_file=web_config_file,
            state_file=state_file,
            shard=shard,
            enable_reload=enable_reload,
        )

    log_to_stderr()
    with operator_errors():
        config = configured()
        if not (config.targets or config.file_sd or config.http_sd or config.kubernetes):
            raise OperatorError(
                ["nothing to scrape: give --vllm-url http://HOST:PORT, or targets in --config FILE"]
            )
    _run(config, configured)


def _run(config: Config, configured: object) -> None:
    from kvcache_exporter.serve import serve

    try:
        with operator_errors():
            asyncio.run(serve(config, configured, Reporter()))  # type: ignore[arg-type]
    except OSError as error:
        fail([f"cannot listen on {config.listen_address}: {error}"])
