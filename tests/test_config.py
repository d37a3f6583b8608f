"""A configuration is taken whole or refused with every mistake, its path and a way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from golden_file import Golden
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.config import Config, load, static_targets, with_flags
from kvcache_exporter.model import Role
from kvcache_exporter.schema import OperatorError, build, parse_yaml
from kvcache_exporter.urls import address_mistake, metrics_url, target_name, url_mistake

DATA = Path(__file__).parent / "data" / "config"
BAD = sorted((DATA / "bad").glob("*.yml"))


def refusal(path: Path) -> str:
    with pytest.raises(OperatorError) as raised:
        load(path)
    return "\n".join(raised.value.lines)


def outcome(work: Callable[[], Config]) -> Config | tuple[str, ...]:
    """The configuration, or the lines of its refusal."""
    try:
        return work()
    except OperatorError as error:
        return error.lines


def test_there_is_a_file_for_each_mistake() -> None:
    assert len(BAD) > 50


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_a_bad_file_is_refused_in_these_words(path: Path, golden: Golden) -> None:
    text = refusal(path).replace(str(path.parent) + "/", "")
    golden(path.with_suffix(".txt"), text + "\n")


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_every_line_of_a_refusal_names_the_file_and_no_secret(path: Path) -> None:
    for line in refusal(path).splitlines():
        assert path.name in line
        assert "SECRET" not in line
        assert len(line) < 300
        assert line.isprintable()


@pytest.mark.parametrize("path", sorted((DATA / "good").glob("*.yml")), ids=lambda p: p.stem)
def test_a_good_file_is_taken(path: Path) -> None:
    assert load(path).interval_seconds > 0


def test_every_key_can_be_set() -> None:
    config = load(DATA / "good" / "everything.yml")
    default = Config()
    same = {f.name for f in fields(Config) if getattr(config, f.name) == getattr(default, f.name)}
    assert same == {"web_config_file"}
    first, second = static_targets(config)
    assert (first.name, first.url) == ("127.0.0.1:8000", "http://127.0.0.1:8000/metrics")
    assert (second.name, second.role, second.hold_seconds) == ("decode", Role.DECODE, 480)
    assert second.labels == (("team", "search"), ("zone", "1"))
    assert second.num_gpu_blocks == 131386


def test_an_empty_file_means_the_defaults() -> None:
    assert load(DATA / "good" / "empty.yml") == Config()


def test_anchors_and_merges_work() -> None:
    targets = static_targets(load(DATA / "good" / "anchors.yml"))
    assert [target.name for target in targets] == ["127.0.0.1:8000", "127.0.0.1:8001", "third"]
    assert {target.labels for target in targets} == {(("team", "search"),)}


@pytest.mark.parametrize(("interval", "timeout"), [(10, 5), (5, 4), (1, 0.8), (60, 5)])
def test_a_scrape_has_four_fifths_of_the_interval_and_at_most_five_seconds(
    interval: float, timeout: float
) -> None:
    assert Config(interval_seconds=interval).scrape_timeout_seconds == pytest.approx(timeout)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    text = refusal(tmp_path / "no.yml")
    assert str(tmp_path / "no.yml") in text
    assert "No such file" in text


def test_a_file_of_five_megabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yml"
    path.write_text("targets: [" + "x, " * 1_700_000 + "]")
    assert "MiB" in refusal(path)


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path)


@given(st.text(max_size=200))
def test_no_text_at_all_gives_anything_but_a_configuration_or_a_refusal(text: str) -> None:
    assert outcome(lambda: build(Config, parse_yaml(text, "any.yml"), "any.yml"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([f.name for f in fields(Config)]), JSON))
def test_any_value_under_any_key_gives_a_configuration_or_a_refusal(data: object) -> None:
    result = outcome(lambda: build(Config, data, "any.yml"))
    if not isinstance(result, Config):
        assert all(line.startswith("any.yml.") for line in result)


@pytest.mark.parametrize(
    ("url", "complete"),
    [
        ("http://a:8000", "http://a:8000/metrics"),
        ("http://a:8000/", "http://a:8000/metrics"),
        ("http://a:8000/v1", "http://a:8000/metrics"),
        ("http://a:8000/metrics", "http://a:8000/metrics"),
        ("http://a:8000/engine/metrics", "http://a:8000/engine/metrics"),
    ],
)
def test_the_address_of_a_server_is_completed(url: str, complete: str) -> None:
    assert metrics_url(url) == complete


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://A:8000", "a:8000"),
        ("http://a", "a:80"),
        ("https://a", "a:443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://a:1/x/metrics", "a:1/x/metrics"),
        ("http://a:1/metrics?token=SECRET", "a:1"),
    ],
)
def test_a_target_is_named_by_host_port_and_unusual_path_only(url: str, name: str) -> None:
    assert target_name(url) == name


@given(st.text(max_size=30))
def test_any_address_is_sound_or_explained(text: str) -> None:
    for url in (text, f"http://{text}", f"http://user:SECRET@{text}"):
        mistake = url_mistake(url)
        assert mistake is None or "SECRET" not in mistake
        if mistake is None:
            assert target_name(url)


@given(st.text(max_size=30))
def test_any_listen_address_is_sound_or_explained(text: str) -> None:
    mistake = address_mistake(text)
    assert mistake is not None or text.rpartition(":")[2].isdecimal()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:1", "localhost:65535", ":8080"])
def test_a_listen_address_is_host_and_port(address: str) -> None:
    assert address_mistake(address) is None


def test_flags_lie_over_the_file_and_repeated_urls_are_one_target() -> None:
    config = with_flags(Config(interval_seconds=30), ["http://a:1", "http://a:1"], max_engines=None)
    assert config.interval_seconds == 30
    assert [one.url for one in config.targets] == ["http://a:1"]
    assert with_flags(config, [], interval_seconds=5).interval_seconds == 5


def test_wrong_flags_are_refused_by_their_names_and_without_secrets() -> None:
    with pytest.raises(OperatorError) as raised:
        with_flags(Config(), ["http://u:SECRET@a:1", "b:2"])
    assert [line.split(":")[0] for line in raised.value.lines] == ["--vllm-url a", "--vllm-url b"]
    assert "SECRET" not in str(raised.value)
    with pytest.raises(OperatorError, match="--interval: "):
        with_flags(Config(), [], interval_seconds=0.0)
