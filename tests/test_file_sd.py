"""Target files in Prometheus' format: a bad one keeps what was known, a gone one takes it along."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.config import Config
from kvcache_exporter.discovery import Found, find_all, open_finders
from kvcache_exporter.discovery._groups import parse
from kvcache_exporter.discovery.file_sd import FileSd
from kvcache_exporter.model import Role
from kvcache_exporter.schema import OperatorError
from kvcache_exporter.sd_config import FileSdConfig

GOOD = '[{"targets": ["a:8000", "b:8000"], "labels": {"team": "search"}}]'


class Watched:
    """One file_sd entry, looked at anew at each call."""

    def __init__(self, *patterns: Path) -> None:
        self.finder = FileSd(FileSdConfig(tuple(map(str, patterns)), refresh_seconds=1))
        self.now = 0.0

    def find(self) -> Found:
        self.now += 2.0
        return self.finder.find(self.now)

    def names(self) -> list[str]:
        return [target.name for target in self.find().targets]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "targets.json"
    path.write_text(GOOD)
    return path


def test_targets_come_with_labels_and_urls(file: Path) -> None:
    first, second = Watched(file).find().targets
    assert (first.name, first.url) == ("a:8000", "http://a:8000/metrics")
    assert first.labels == second.labels == (("team", "search"),)


def test_yaml_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "targets.yml"
    path.write_text("- targets: [a:8000]\n  labels: {team: search}\n")
    assert Watched(path).names() == ["a:8000"]


def test_meta_labels_say_scheme_path_role_and_hold(tmp_path: Path) -> None:
    labels = {
        "__scheme__": "https",
        "__metrics_path__": "/engine/metrics",
        "__kvcache_role__": "decode",
        "__kvcache_hold_seconds__": "480",
        "__meta_other": "x",
    }
    text = json.dumps([{"targets": ["a:1"], "labels": labels}])
    [target] = parse(text, "t.json")
    assert target.url == "https://a:1/engine/metrics"
    assert (target.role, target.hold_seconds, target.labels) == (Role.DECODE, 480, ())


def test_a_whole_url_may_stand_for_an_address() -> None:
    [target] = parse('[{"targets": ["https://a:8443/x"]}]', "t.json")
    assert (target.name, target.url) == ("a:8443/x", "https://a:8443/x")


def test_labels_that_are_ours_are_left_out() -> None:
    [target] = parse('[{"targets": ["a:1"], "labels": {"engine": "9", "team": "x"}}]', "t.json")
    assert target.labels == (("team", "x"),)


@pytest.mark.parametrize(
    "content",
    [
        '[{"targets": ["a:8000"',
        "",
        "{}",
        '[{"targets": "a:8000"}]',
        '[{"targets": ["http://u:SECRET@a:1"]}]',
        '[{"targets": ["a:99999"]}]',
        '[{"targets": ["a b"]}]',
        '[{"target": ["a:8000"]}]',
        '[{"targets": ["a:1"], "labels": {"x": 5}}]',
        '[{"targets": ["a:1"], "targets": ["b:1"]}]',
        '[{"targets": ["a:1"], "labels": {"x": "\\ud83e"}}]',
        '[{"targets": ["a:1"], "labels": {"__kvcache_role__": "chef"}}]',
        "[" * 50_000,
        b"\xff\xfe",
    ],
)
def test_a_bad_file_keeps_its_last_good_targets_and_says_so(
    file: Path, content: str | bytes
) -> None:
    watched = Watched(file)
    assert watched.names() == ["a:8000", "b:8000"]
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = watched.find()
    assert [target.name for target in found.targets] == ["a:8000", "b:8000"]
    [problem] = found.problems
    assert str(file) in problem.text
    assert "2 targets are kept" in problem.text
    assert "SECRET" not in problem.text
    file.write_text('[{"targets": ["c:8000"]}]')
    found = watched.find()
    assert ([target.name for target in found.targets], found.problems) == (["c:8000"], ())


def test_an_unreadable_file_keeps_its_targets(file: Path) -> None:
    watched = Watched(file)
    watched.find()
    file.unlink()
    file.mkdir()
    found = watched.find()
    assert len(found.targets) == 2
    assert "cannot be read" in found.problems[0].text


def test_an_empty_list_means_no_targets(file: Path) -> None:
    watched = Watched(file)
    watched.find()
    file.write_text("[]")
    assert watched.find() == Found((), ())


def test_a_deleted_file_takes_its_targets_along_and_is_missed(file: Path) -> None:
    watched = Watched(file)
    watched.find()
    file.unlink()
    found = watched.find()
    assert found.targets == ()
    assert "no such file" in found.problems[0].text


def test_a_file_that_comes_later_is_found(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "late.json")
    assert watched.names() == []
    (tmp_path / "late.json").write_text(GOOD)
    assert watched.names() == ["a:8000", "b:8000"]


def test_a_pattern_finds_files_as_they_come_and_go(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "*.json")
    assert watched.find() == Found((), ())
    for name in ("two", "one"):
        (tmp_path / f"{name}.json").write_text(f'[{{"targets": ["{name}:1"]}}]')
    assert watched.names() == ["one:1", "two:1"]
    (tmp_path / "one.json").unlink()
    assert watched.find() == Found(watched.find().targets, ())
    assert watched.names() == ["two:1"]


def test_one_bad_file_of_a_pattern_does_not_touch_the_others(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        (tmp_path / f"{name}.json").write_text(f'[{{"targets": ["{name}:1"]}}]')
    watched = Watched(tmp_path / "*.json")
    watched.find()
    (tmp_path / "bad.json").write_text("[")
    (tmp_path / "good.json").write_text('[{"targets": ["better:1"]}]')
    assert watched.names() == ["bad:1", "better:1"]


def test_a_config_map_s_swapped_link_is_seen(tmp_path: Path) -> None:
    """Kubernetes writes a new directory and renames a link over the old one."""
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "targets.json").write_text(f'[{{"targets": ["v{version}:1"]}}]')
        os.utime(tmp_path / version / "targets.json", (1_700_000_000, 1_700_000_000))
    (tmp_path / "data").symlink_to("1")
    (tmp_path / "targets.json").symlink_to("data/targets.json")
    watched = Watched(tmp_path / "targets.json")
    assert watched.names() == ["v1:1"]
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").rename(tmp_path / "data")
    assert watched.names() == ["v2:1"]


def test_files_are_not_looked_at_before_their_time(file: Path) -> None:
    finder = FileSd(FileSdConfig((str(file),), refresh_seconds=30))
    assert len(finder.find(0.0).targets) == 2
    file.write_text("[]")
    assert len(finder.find(29.0).targets) == 2
    assert finder.find(30.0).targets == ()


def test_ten_thousand_targets_in_json_are_no_trouble(tmp_path: Path) -> None:
    groups = [{"targets": [f"10.0.{i // 250}.{i % 250}:8000"]} for i in range(10_000)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps(groups))
    assert len(Watched(path).names()) == 10_000


@given(st.text(max_size=60), st.sampled_from(["t.json", "t.yml"]))
def test_any_text_gives_targets_or_a_refusal(text: str, path: str) -> None:
    targets: object = ()
    try:
        targets = parse(text, path)
    except OperatorError as error:
        targets = error.lines
    assert isinstance(targets, tuple)


def test_of_two_targets_with_one_name_the_first_stands(file: Path) -> None:
    config = Config(targets=(), file_sd=(FileSdConfig((str(file),)), FileSdConfig((str(file),))))
    found = find_all(open_finders(config), 0.0)
    assert [target.name for target in found.targets] == ["a:8000", "b:8000"]
