"""A page is read as Prometheus reads it: flawless or not at all, only the wanted names."""

from __future__ import annotations

import math
from pathlib import Path

import prometheus_client.openmetrics.parser as openmetrics
import prometheus_client.parser as text_format
import promtool
import pytest

from kvcache_exporter.engines import vllm
from kvcache_exporter.model import Problem, Sample
from kvcache_exporter.samples import ANEW_PAGES, MAX_LABEL_VALUE_CHARACTERS, Parser, number

CORPUS = Path(__file__).parent / "data" / "exposition"
PAGES = Path(__file__).parent / "data" / "pages"
PREFIXES = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
USAGE = "vllm:kv_cache_usage_perc"
TEXT_ONLY = "openmetrics_"
"""promtool checks the text format alone, where exemplars and fractional seconds are errors."""


def corpus(kind: str) -> list[Path]:
    return sorted((CORPUS / kind).glob("*.prom"))


def parse(body: bytes) -> list[Sample] | Problem:
    return Parser(vllm.NAMES, vllm.PLAIN).parse(body)


def samples(body: bytes) -> list[Sample]:
    found = parse(body)
    assert not isinstance(found, Problem), found.text
    return found


def problem(body: bytes) -> Problem:
    found = parse(body)
    assert isinstance(found, Problem), found
    return found


def wanted(name: str) -> bool:
    base = next((name[len(p) :] for p in PREFIXES if name.startswith(p)), None)
    return name in vllm.PLAIN if base is None else base in vllm.NAMES


def by_the_stock_parser(body: bytes) -> list[tuple[str, dict[str, str], float]]:
    """All wanted samples, with the bounds that we set to label values."""
    parser = openmetrics if body.endswith(b"# EOF\n") else text_format
    families = parser.text_string_to_metric_families(body.decode())
    return [
        (s.name, {k: bounded(v) for k, v in s.labels.items()}, float(s.value))
        for family in families
        for s in family.samples
        if wanted(s.name)
    ]


def bounded(value: str) -> str:
    control = {*range(0x20), *range(0x7F, 0xA0)}
    clean = "".join(" " if ord(c) in control else c for c in value)
    return clean[:MAX_LABEL_VALUE_CHARACTERS]


def comparable(found: list[tuple[str, dict[str, str], float]]) -> list[tuple[str, str, str]]:
    return sorted((name, str(sorted(labels.items())), repr(value)) for name, labels, value in found)


def test_the_corpus_is_there() -> None:
    assert len(corpus("good")) + len(corpus("bad")) + len(corpus("stricter")) >= 120


@pytest.mark.parametrize(
    "path", [*corpus("good"), *sorted(PAGES.glob("*.prom"))], ids=lambda p: p.stem
)
def test_a_good_page_reads_as_the_stock_parser_reads_it(path: Path) -> None:
    body = path.read_bytes()
    found = [(name, dict(labels), value) for name, labels, value in samples(body)]
    assert comparable(found) == comparable(by_the_stock_parser(body))


@pytest.mark.parametrize("path", corpus("good"), ids=lambda p: p.stem)
def test_prometheus_reads_the_good_page_too(path: Path) -> None:
    if not path.stem.startswith(TEXT_ONLY):
        assert promtool.parses(path.read_bytes())


@pytest.mark.parametrize("path", corpus("bad"), ids=lambda p: p.stem)
def test_prometheus_and_we_refuse_the_bad_page(path: Path) -> None:
    body = path.read_bytes()
    assert not promtool.parses(body)
    assert problem(body).text


@pytest.mark.parametrize("path", corpus("stricter"), ids=lambda p: p.stem)
def test_a_page_beyond_our_limits_is_refused_with_a_way_out(path: Path) -> None:
    assert ": " in problem(path.read_bytes()).text


@pytest.mark.parametrize("path", corpus("bad"), ids=lambda p: p.stem)
def test_what_was_learned_from_a_good_page_does_not_excuse_a_bad_line(path: Path) -> None:
    parser = Parser(vllm.NAMES, vllm.PLAIN)
    for good in corpus("good"):
        parser.parse(good.read_bytes())
    assert isinstance(parser.parse(path.read_bytes()), Problem)


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.prom")), ids=lambda p: p.stem)
def test_a_page_seen_before_reads_the_same_again(path: Path) -> None:
    parser = Parser(vllm.NAMES, vllm.PLAIN)
    first, second = (repr(parser.parse(path.read_bytes())) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\n <!DOCTYPE html>\n<html></html>\n", "not_metrics"),
        (b'[{"status": "ok"}]\n', "not_metrics"),
        (b"vllm:kv_cache_usage_perc 0.123", "truncated"),
        (b"vllm:kv_cache_usage_perc 0.1 0.2\n", "malformed"),
        (b"vllm:kv_cache_usage_perc 1\n" * 4097, "too_many_series"),
    ],
)
def test_a_refused_page_has_a_code_for_its_cause(page: bytes, code: str) -> None:
    assert problem(page).code == code


def test_a_malformed_line_is_shown_but_never_whole() -> None:
    text = problem(f'{USAGE}{{engine="{"x" * 30_000}"}} nonsense\n'.encode()).text
    assert "'nonsense' is not a number" in text
    assert USAGE in text
    assert len(text) < 400


def test_control_characters_of_a_bad_line_do_not_reach_the_message() -> None:
    assert "\x1b" not in problem(f'{USAGE}{{engine="\x1b[31m"}} x\n'.encode()).text


def test_a_bad_line_that_nobody_wants_does_no_harm() -> None:
    body = f"node_load1 ١٢\nvllm:lora_info{{ 1\n{USAGE} 0.5\n".encode()
    assert samples(body) == [Sample(USAGE, {}, 0.5)]


def test_samples_come_in_page_order() -> None:
    body = f"{USAGE} 0.5\nprocess_start_time_seconds 5\nvllm:num_requests_running 1\n"
    names = [sample.name for sample in samples(body.encode())]
    assert names == [USAGE, "process_start_time_seconds", "vllm:num_requests_running"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_spelling_of_the_prefix_is_read(prefix: str) -> None:
    [sample] = samples(f"{prefix}kv_cache_usage_perc 0.5\n".encode())
    assert sample.name == f"{prefix}kv_cache_usage_perc"


def test_one_spelling_is_read_where_a_page_has_two() -> None:
    body = f"ray_vllm_kv_cache_usage_perc 0.25\n{USAGE} 0.5\n".encode()
    assert [sample.value for sample in samples(body)] == [0.5]


def test_a_foreign_series_with_a_prefix_like_ours_does_not_hide_the_real_ones() -> None:
    body = b"vllm_router_up 1\nray_vllm_kv_cache_usage_perc 0.25\n"
    assert [sample.value for sample in samples(body)] == [0.25]


def test_a_time_stamp_on_the_page_is_not_taken_for_the_value() -> None:
    parser = Parser(vllm.NAMES)
    for value in (0.5, 0.25):
        found = parser.parse(f"{USAGE} {value} 1790000000000\n".encode())
        assert found == [Sample(USAGE, {}, value)]


def test_labels_are_bounded_and_free_of_control_characters() -> None:
    [sample] = samples(f'{USAGE}{{model_name="\x00{"é" * 5000}\x9b"}} 0.5\n'.encode())
    assert sample.labels["model_name"] == " " + "é" * (MAX_LABEL_VALUE_CHARACTERS - 1)


@pytest.mark.parametrize(
    "body",
    [
        b'vllm:cache_config_info{x="' + b"x" * 22_000_000 + b'"} 1\n',
        b"vllm:cache_config_info{" + b"".join(b'l%d="",' % i for i in range(10_000)) + b"} 1\n",
        b"vllm:kv_cache_usage_perc " + b"1" * 1_000_000 + b"\n",
        b'vllm:kv_cache_usage_perc{engine="' + b"\\" * 60_001 + b'"} 1\n',
        b"vllm:kv_cache_usage_perc" + b"{" * 60_000 + b" 1\n",
        b"".join(b'vllm:kv_cache_usage_perc{engine="%d"} 1\n' % i for i in range(200_000)),
    ],
    ids=["22_MB_label", "10k_labels", "1_MB_value", "backslashes", "braces", "200k_series"],
)
@pytest.mark.timeout(10)
def test_a_bomb_is_refused_soon(body: bytes) -> None:
    assert problem(body).text


def test_a_giant_number_for_a_known_series_is_refused() -> None:
    parser = Parser(vllm.NAMES)
    parser.parse(f"{USAGE} 1\n".encode())
    assert isinstance(parser.parse(f"{USAGE} {'1' * 1_000_000}\n".encode()), Problem)


def test_a_giant_label_on_an_unread_series_does_no_harm() -> None:
    body = b'vllm:vllm_config_info{x="' + b"x" * 2_000_000 + b'"} 1\nvllm:kv_cache_usage_perc 0.5\n'
    assert [sample.value for sample in samples(body)] == [0.5]


def test_label_blocks_of_a_vanished_series_are_forgotten() -> None:
    parser = Parser(vllm.NAMES)
    for page in range(50):
        parser.parse(f'{USAGE}{{model_name="{page}"}} 1\n'.encode())
    assert len(parser._last) == 1


def test_a_page_laid_out_as_the_last_one_is_read_where_the_series_were() -> None:
    parser = Parser(vllm.NAMES, vllm.PLAIN)
    page = "other_total {}\nvllm:kv_cache_usage_perc {}\nvllm:num_requests_running {}\n"
    for numbers in ((1, 0.5, 3), (2, 0.25, 3), (3, 0.25, 4)):
        found = parser.parse(page.format(*numbers).encode())
        assert isinstance(found, list)
        assert [sample.value for sample in found] == list(numbers[1:])


def test_series_that_change_places_are_read_where_they_are_now() -> None:
    parser = Parser(vllm.NAMES, vllm.PLAIN)
    lines = ["vllm:num_requests_running 3", "other_total 1", "vllm:num_requests_waiting 4"]
    for order in (lines, lines[::-1], [lines[1], lines[0], lines[2]]):
        found = parser.parse("\n".join((*order, "")).encode())
        assert isinstance(found, list)
        assert {sample.name: sample.value for sample in found} == {
            "vllm:num_requests_running": 3.0,
            "vllm:num_requests_waiting": 4.0,
        }


def test_a_series_that_takes_the_place_of_a_foreign_one_is_found_before_long() -> None:
    parser = Parser(vllm.NAMES, vllm.PLAIN)
    parser.parse(b"vllm:num_requests_running 3\nother_total 1\n")
    pages = [
        parser.parse(b"vllm:num_requests_running 3\nvllm:num_requests_waiting 4\n")
        for _ in range(ANEW_PAGES)
    ]
    assert any(isinstance(page, list) and len(page) == 2 for page in pages)
    assert isinstance(pages[-1], list)
    assert len(pages[-1]) == 2, "and it stays found"


def test_a_number_is_read_to_the_last_bit() -> None:
    for value in (0.1, 1 - 1 / 131385, 5e-324, 1.7976931348623157e308):
        assert number(repr(value).encode()) == value
    assert math.isnan(number(b"nan"))
