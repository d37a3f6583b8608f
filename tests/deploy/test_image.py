"""The image as it is deployed: no root, nothing writable, a target outside of it (opt-in)."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import kube_server
import pytest
import yaml
from exporter_process import free_port
from kube_server import Cluster, pod
from manifests import build, container, of_kind

from kvcache_exporter import __version__
from kvcache_exporter.simulate.engine import Engine, EngineConfig
from kvcache_exporter.simulate.server import Server, ServerThread
from kvcache_exporter.simulate.site import Site
from kvcache_exporter.simulate.workload import Workload

IMAGE = os.environ.get("KVCACHE_IMAGE", "")
pytestmark = pytest.mark.skipif(not IMAGE, reason="make image-test builds the image and names it")
DEPLOYED = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host"]
"""What deploy/k8s asks of a container engine."""


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    engine = Engine(EngineConfig("qwen2.5-7b", num_gpu_blocks=4097), Workload(1.0), seed=1)
    with ServerThread(Server(Site([engine])), engine.advance) as server:
        yield server.url()


@pytest.fixture(scope="module")
def running(target: str) -> Iterator[tuple[str, str]]:
    """(name of the container, address of its pages)."""
    listen = f"127.0.0.1:{free_port()}"
    command = ["run", f"--vllm-url={target}", f"--listen-address={listen}", "--interval=1"]
    name = docker("run", "--detach", *DEPLOYED, IMAGE, *command)
    try:
        yield name, f"http://{listen}"
    finally:
        docker("rm", "--force", name)


def page(address: str, until: str = "") -> str:
    """The page once it is served and holds *until*, or its last state after a minute."""
    text = ""
    for _ in range(300):
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                text = answer.read().decode()
            if until in text:
                break
        except OSError:  # not up yet
            pass
        time.sleep(0.2)
    return text


def test_it_judges_an_engine_outside_of_the_container(running, target):
    text = page(running[1] + "/metrics")
    name = target.split("/")[2]
    assert f'kvcache_target_up{{target="{name}"}} 1' in text
    assert f'kvcache_pool_blocks{{target="{name}",engine="0"}} 4096' in text


def test_it_finds_pods_with_the_arguments_and_the_configuration_of_the_daemon_set(target):
    docs = build()
    [text] = [doc["data"]["exporter.yml"] for doc in of_kind(docs, "ConfigMap")]
    config = yaml.safe_load(text)
    cluster, listen = Cluster(token=""), f"127.0.0.1:{free_port()}"
    cluster.put(pod("here-0", ports=[("http", int(target.split(":")[2].split("/")[0]))]))
    with TemporaryDirectory() as folder, kube_server.serve(cluster, Path(folder)) as url:
        Path(folder).chmod(0o755)  # for user 65532
        config |= {"listen_address": listen, "kubernetes": [{"api_server": url}]}
        (Path(folder) / "exporter.yml").write_text(yaml.safe_dump(config))
        mounts = [f"--volume={folder}:/etc/kvcache-exporter:ro", "--env=NODE_NAME=node-a"]
        mounts += ["--tmpfs=/var/lib/kvcache-exporter:uid=65532"]
        name = docker("run", "--detach", *DEPLOYED, *mounts, IMAGE, *container(docs)["args"])
        try:
            seen = 'namespace="prod",pod="here-0"} 1'
            assert seen in page(f"http://{listen}/metrics", until=seen)
        finally:
            docker("rm", "--force", name)


def test_it_is_not_root_and_can_write_nothing(running):
    status = docker("exec", running[0], "cat", "/proc/1/status")
    words = {line.split(":")[0]: line.split()[1:] for line in status.splitlines()}
    assert words["Uid"] == words["Gid"] == ["65532"] * 4
    assert int(words["CapEff"][0], 16) == 0
    assert docker("inspect", "--format={{.HostConfig.ReadonlyRootfs}}", running[0]) == "true"
    assert docker("diff", running[0]) == ""


def test_it_holds_no_installer(running):
    program = "import importlib.util as u; print([m for m in ('pip', 'pytest') if u.find_spec(m)])"
    assert docker("exec", running[0], "python", "-c", program) == "[]"


def test_it_says_what_it_is():
    config = json.loads(docker("image", "inspect", IMAGE))[0]["Config"]
    labels = {
        key.removeprefix("org.opencontainers.image."): v for key, v in config["Labels"].items()
    }
    assert labels["version"] == __version__
    assert labels["licenses"] == "Apache-2.0"
    assert {"title", "description", "source", "revision", "created"} <= labels.keys()
    assert config["User"] == "65532:65532"
    assert list(config["ExposedPorts"]) == ["10158/tcp"]


def test_the_version_of_the_package_in_it_is_the_label():
    assert __version__ in docker("run", "--rm", *DEPLOYED, IMAGE, "--version")


def test_it_ends_at_once_and_in_order_when_told_to(running):
    started = time.monotonic()
    docker("stop", "--time=30", running[0])
    assert docker("inspect", "--format={{.State.ExitCode}}", running[0]) == "0"
    assert time.monotonic() - started < 30  # else it was killed
