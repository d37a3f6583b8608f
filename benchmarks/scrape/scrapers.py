"""Us and the peers: how each is started on a list of targets, scraping every ten seconds."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".cache" / "peers" / "usr" / "bin"
INTERVAL_SECONDS = 10
OUR_ADDRESS = "127.0.0.1:9124"
SINK = "http://127.0.0.1:9125/"
SINGLE_CPU = {"GOMAXPROCS": "1"}
"""With more, Go's garbage collector runs in parallel and both peers cost more CPU."""


@dataclass(frozen=True, slots=True)
class Scraper:
    """One competitor; `agent` is its name in the targets' counts."""

    name: str
    agent: str
    command: Callable[[Path, list[str]], list[str]]
    environment: Mapping[str, str]


def scrapers() -> list[Scraper]:
    """Return every competitor that is installed, ours first."""
    found = [
        ours_filtered(),
        Scraper("kvcache-exporter, whole page", "kvcache-exporter", _ours, {}),
    ]
    if shutil.which("prometheus"):
        found.append(Scraper("Prometheus", "prometheus", _prometheus, SINGLE_CPU))
    if (PEERS / "vmagent").exists():
        found.append(Scraper("vmagent", "vmagent", _vmagent, SINGLE_CPU))
    return found


def ours_filtered() -> Scraper:
    """Return ourselves as shipped, with vLLM's filtered route where it is proved."""
    return Scraper("kvcache-exporter", "kvcache-exporter", _ours_filtered, {})


def _ours(folder: Path, addresses: list[str]) -> list[str]:
    return _our_command(folder, addresses, filtered=False)


def _ours_filtered(folder: Path, addresses: list[str]) -> list[str]:
    return _our_command(folder, addresses, filtered=True)


def _our_command(folder: Path, addresses: list[str], *, filtered: bool) -> list[str]:
    config = folder / "kvcache.json"
    config.write_text(
        json.dumps(
            {
                "listen_address": OUR_ADDRESS,
                "interval_seconds": INTERVAL_SECONDS,
                "filtered_route": filtered,
                "gpus": {"nvml": {"enabled": False}},
                "targets": [{"url": f"http://{one}"} for one in addresses],
            }
        )
    )
    return [sys.executable, "-m", "kvcache_exporter", "run", "--config", str(config)]


def _scrape_config(folder: Path, addresses: list[str]) -> Path:
    config = folder / "prometheus.yml"
    job = {
        "job_name": "vllm",
        "scrape_interval": f"{INTERVAL_SECONDS}s",
        "static_configs": [{"targets": addresses}],
    }
    config.write_text(json.dumps({"scrape_configs": [job]}))
    return config


def _prometheus(folder: Path, addresses: list[str]) -> list[str]:
    return [
        "prometheus",
        f"--config.file={_scrape_config(folder, addresses)}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        "--web.listen-address=127.0.0.1:9126",
    ]


def _vmagent(folder: Path, addresses: list[str]) -> list[str]:
    return [
        str(PEERS / "vmagent"),
        f"-promscrape.config={_scrape_config(folder, addresses)}",
        f"-remoteWrite.url={SINK}",
        f"-remoteWrite.tmpDataPath={folder / 'vmagent'}",
        "-httpListenAddr=127.0.0.1:9127",
    ]
