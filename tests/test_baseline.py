"""Baselines: a readable file, and a comparison that knows noise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import openai_server
import pytest
from click.testing import CliRunner, Result
from openai_server import Behaviour

from kvcache_exporter.baseline.compare import Weight, compare
from kvcache_exporter.baseline.picture import Picture, Spread
from kvcache_exporter.baseline.store import read, save
from kvcache_exporter.cli import main
from kvcache_exporter.schema import OperatorError

GOOD = Picture(
    taken="2026-01-01T00:00:00+00:00",
    url="http://a",
    vllm_version="0.32.0",
    pool_blocks=511,
    idle=True,
    used_blocks=0,
    hit_ratio=0.5,
    gpu_used_bytes=70 * 2**30,
    total_seconds=Spread(1.0, 0.9, 1.2, 7),
)


def weights(now: Picture) -> dict[str, Weight]:
    return {one.what: one.weight for one in compare(GOOD, now)}


def test_the_same_picture_is_the_same() -> None:
    assert set(weights(GOOD).values()) == {Weight.SAME}


def test_one_more_block_at_idle_is_a_leak() -> None:
    assert weights(replace(GOOD, used_blocks=1))["idle blocks"] is Weight.LEAKING


def test_blocks_of_a_busy_server_are_not_compared() -> None:
    assert weights(replace(GOOD, used_blocks=99, idle=False))["idle blocks"] is Weight.SAME


@pytest.mark.parametrize(
    ("low", "median", "weight"), [(1.3, 1.5, Weight.DRIFTED), (1.1, 1.5, Weight.SAME)]
)
def test_slower_counts_only_beyond_the_spread(low: float, median: float, weight: Weight) -> None:
    now = replace(GOOD, total_seconds=Spread(median, low, 2.0, 7))
    assert weights(now)["fixed request"] is weight


def test_growth_of_gpu_memory_beyond_noise_is_drift() -> None:
    assert weights(replace(GOOD, gpu_used_bytes=71 * 2**30))["GPU memory"] is Weight.SAME
    assert weights(replace(GOOD, gpu_used_bytes=73 * 2**30))["GPU memory"] is Weight.DRIFTED


def test_another_version_is_said_first() -> None:
    first = compare(GOOD, replace(GOOD, vllm_version="0.33.0"))[0]
    assert (first.what, first.weight) == ("vllm version", Weight.DRIFTED)


def test_what_was_not_measured_is_not_compared() -> None:
    assert "hit ratio" not in weights(replace(GOOD, hit_ratio=None))


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "good.yml"
    save(GOOD, path)

    assert read(path) == GOOD
    assert [p.name for p in tmp_path.iterdir()] == ["good.yml"]


def test_a_foreign_file_is_refused_with_every_mistake(tmp_path: Path) -> None:
    path = tmp_path / "foreign.yml"
    path.write_text("takn: yesterday\nused_blocks: many\n")
    with pytest.raises(OperatorError) as error:
        read(path)

    assert len(error.value.lines) == 4
    assert "did you mean taken?" in str(error.value)


def run(folder: Path, *arguments: object) -> Result:
    config = folder / "no-gpus"
    config.write_text("gpus: {nvml: {enabled: false}}\n")
    return CliRunner().invoke(main, ["baseline", *map(str, arguments), "--config", str(config)])


def test_save_and_compare_find_a_leak_between_them(tmp_path: Path) -> None:
    path, behaviour = tmp_path / "good.yml", Behaviour()
    with openai_server.serve(behaviour) as url:
        saved = run(tmp_path, "save", url, "--out", path, "--repetitions", 3)
        same = run(tmp_path, "compare", url, path, "--repetitions", 3)
        behaviour.lost = 5
        leaking = run(tmp_path, "compare", url, path, "--repetitions", 3, "--json")

    assert saved.exit_code == 0, saved.output
    assert same.exit_code in (0, 1), same.output  # 1: this machine may have become slower
    assert leaking.exit_code == 2
    changes = {one["what"]: one for one in json.loads(leaking.stdout)["changes"]}
    assert changes["idle blocks"]["text"] == "0 in use at idle then, 5 now (+5)"


def test_nothing_is_written_when_nothing_was_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "save", "http://127.0.0.1:9", "--out", tmp_path / "x.yml")

    assert done.exit_code == 3
    assert "nothing could be measured" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["no-gpus"]
