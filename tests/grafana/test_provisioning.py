"""The files that carry the dashboards into a Grafana, and the demo that does so in one command.

No container engine runs here: what is tested is that the pieces fit together as written.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from boards import FILES, ROOT, Json

COMPOSE_DIR = ROOT / "deploy" / "compose"
PROVISIONING = ROOT / "grafana" / "provisioning"


def _yaml(path: Path) -> Json:
    loaded: Json = yaml.safe_load(path.read_text())
    return loaded


COMPOSE = _yaml(COMPOSE_DIR / "compose.yml")
SERVICES: Json = COMPOSE["services"]
SOURCE: Json = _yaml(PROVISIONING / "datasources" / "prometheus.yml")["datasources"][0]
PROVIDER: Json = _yaml(PROVISIONING / "dashboards" / "kvcache.yml")["providers"][0]


def _mounts(service: str) -> dict[str, str]:
    """Map the path inside to the path outside, or to the name of a volume."""
    pairs = (one.split(":") for one in SERVICES[service]["volumes"])
    return {inside: outside for outside, inside, *_ in pairs}


def test_grafana_finds_the_dashboards_where_the_provider_looks() -> None:
    outside = _mounts("grafana")[PROVIDER["options"]["path"]]
    assert (COMPOSE_DIR / outside).resolve() == FILES[0].parent


def test_the_home_page_is_a_dashboard() -> None:
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).name in {path.name for path in FILES}
    assert str(Path(home).parent) == PROVIDER["options"]["path"]


def test_the_data_source_knows_the_scrape_interval() -> None:
    scrape = _yaml(COMPOSE_DIR / "prometheus.yml")["global"]["scrape_interval"]
    assert SOURCE["jsonData"]["timeInterval"] == scrape


def test_the_address_of_prometheus_is_given_to_grafana() -> None:
    names = re.findall(r"\$\{?(\w+)", SOURCE["url"])
    assert set(names) <= SERVICES["grafana"]["environment"].keys()


@pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
def test_images_are_built_here_or_pinned_to_a_release(service: Json) -> None:
    assert "build" in service or re.search(r":v?\d+\.\d+\.\d+$", service["image"])


@pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
def test_ports_are_for_this_host_alone(service: Json) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists(name: str) -> None:
    for outside in _mounts(name).values():
        if outside.startswith("."):
            assert (COMPOSE_DIR / outside).exists(), outside
        else:
            assert outside in COMPOSE["volumes"], outside


@pytest.mark.parametrize("name", SERVICES)
def test_services_wait_only_for_services_that_can_get_there(name: str) -> None:
    waits = SERVICES[name].get("depends_on", {})
    assert set(waits) <= SERVICES.keys()
    for other, how in waits.items() if isinstance(waits, dict) else ():
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]


def test_the_demo_is_scraped_under_the_names_that_its_past_has() -> None:
    job = _yaml(COMPOSE_DIR / "prometheus.yml")["scrape_configs"][0]
    command = " ".join(SERVICES["exporter"]["command"])
    assert f"--instance={job['static_configs'][0]['targets'][0]}" in command
    assert job["job_name"] == _yaml(ROOT / "alerting" / "thresholds.yml")["job"]


def test_kubernetes_gets_every_dashboard_in_a_configmap_of_its_own() -> None:
    maps = _yaml(FILES[0].parent / "kustomization.yaml")["configMapGenerator"]
    assert sorted(one["files"] for one in maps) == [[path.name] for path in FILES]
    assert len({one["name"] for one in maps}) == len(FILES)


def test_pictures_in_the_documentation_are_there_and_small() -> None:
    text = (ROOT / "docs" / "grafana.md").read_text()
    pictures = [ROOT / "docs" / name for name in re.findall(r"\]\((images/[^)]+)\)", text)]
    assert len(pictures) == len(FILES)
    assert all(0 < picture.stat().st_size < 300_000 for picture in pictures)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("promtool", ["check", "config", "--syntax-only", "prometheus.yml"]),
        ("amtool", ["check-config", "alertmanager.yml"]),
    ],
)
def test_the_configuration_is_taken(tool: str, arguments: list[str]) -> None:
    binary = shutil.which(tool)
    assert binary, f"{tool} is missing: apt-get install prometheus prometheus-alertmanager"
    done = subprocess.run([binary, *arguments], cwd=COMPOSE_DIR, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
