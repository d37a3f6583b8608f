"""Every input of ``analyze`` becomes the samples a page would have had, or a clear refusal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.analyze import Frame, InputError, log, pages, table
from kvcache_exporter.analyze.exact import Unrounding
from kvcache_exporter.cli import main
from kvcache_exporter.engines import vllm
from kvcache_exporter.model import EngineReading, Problem

DATA = Path(__file__).parent / "data"
NOW = datetime(2026, 1, 20, tzinfo=UTC)


def readings(frames: Iterator[Frame]) -> list[list[EngineReading]]:
    """Read frames as the replay does; a failed scrape has no reading."""
    memory, found = vllm.Memory(), []
    for frame in frames:
        if isinstance(frame.samples, Problem):
            found.append([])
            continue
        page, memory = vllm.read(frame.samples, memory)
        found.append(list(page.engines))
    return found


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "given.csv"
    path.write_text(textwrap.dedent(text).lstrip())
    return path


# -- tables -------------------------------------------------------------------------------


def test_a_table_gives_what_a_page_would(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        """
        t_seconds,running,waiting,usage,num_gpu_blocks,block_size,generation_tokens_total,connector
        0,3,1,0.25,1025,16,100,1
        """,
    )
    ((one,),) = readings(table.frames(path))
    assert (one.running, one.waiting, one.used_blocks, one.pool_blocks) == (3, 1, 256, 1024)
    assert (one.block_size_tokens, one.generation_tokens, one.connector) == (16, 100, True)


def test_an_empty_field_is_missing_and_an_empty_row_is_a_failed_scrape(tmp_path: Path) -> None:
    path = csv(tmp_path, "time,running,waiting,usage\n0,1,,0.5\n10,,,\n20,1,0,0.5\n")
    first, second, third = readings(table.frames(path))
    assert first[0].waiting is None
    assert second == []
    assert third[0].waiting == 0


def test_targets_and_engines_of_one_table_are_kept_apart(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        """
        time,target,engine,running,waiting,usage
        0,a,0,1,0,0.1
        0,a,1,2,0,0.2
        0,b,0,3,0,0.3
        """,
    )
    frames = list(table.frames(path))
    assert [frame.target for frame in frames] == ["a", "b"]
    assert [one.running for one in readings(iter(frames))[0]] == [1, 2]


@pytest.mark.parametrize("time", ["2026-01-02T03:04:05Z", "2026-01-02 03:04:05", "1767323045"])
def test_times_may_be_seconds_or_iso_8601(tmp_path: Path, time: str) -> None:
    (frame,) = table.frames(csv(tmp_path, f"time,running\n{time},1\n"))
    assert frame.time == 1767323045


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_any_usual_separator_and_a_byte_order_mark_are_understood(
    tmp_path: Path, separator: str
) -> None:
    path = csv(tmp_path, "\ufefftime,running,usage\n0,4,0.5\n".replace(",", separator))
    assert readings(table.frames(path))[0][0].running == 4


def test_a_rate_is_summed_up_to_its_counter(tmp_path: Path) -> None:
    path = csv(tmp_path, "t_seconds,running,usage,gen_tok_s\n0,1,.1,9\n10,1,.1,10\n30,1,.1,5\n")
    assert [one.generation_tokens for (one,) in readings(table.frames(path))] == [0, 100, 200]


def test_labels_can_be_written_into_a_header(tmp_path: Path) -> None:
    path = csv(tmp_path, 'time,running,"request_success_total{finished_reason=""abort""}"\n0,1,7\n')
    assert readings(table.frames(path))[0][0].completions != 7


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time,running\n0,many\n", "line 2: running is 'many'; it must be a number"),
        ("time,running\nlater,1\n", "line 2: time is 'later'; it must be seconds or an ISO"),
        ("running,waiting\n1,2\n", "names no time column"),
        ("time,colour\n0,red\n", "no column of the header is a known metric"),
        ("", "names no time column"),
    ],
)
def test_a_bad_table_is_refused_with_line_rule_and_remedy(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = csv(tmp_path, text)
    with pytest.raises(InputError, match=complaint):
        list(table.frames(path))
    result = CliRunner().invoke(main, ["analyze", "--csv", str(path)])
    assert result.exit_code == 3
    assert "Traceback" not in result.output


def test_columns_that_nothing_is_read_from_are_named(tmp_path: Path) -> None:
    path = csv(tmp_path, "time,running,usage,colour\n0,1,0.1,red\n")
    assert table.ignored(path) == ("colour",)


@given(
    blocks=st.integers(1_000, 40_000),
    used=st.lists(st.floats(0, 1), min_size=30, max_size=60),
    decimals=st.integers(6, 10),
    less=st.sampled_from([0, 1]),
)
def test_rounded_usage_is_put_back_on_whole_blocks(
    blocks: int, used: list[float], decimals: int, less: int
) -> None:
    size = blocks - less
    counts = [round(share * size) for share in used]
    texts = [f"{count / size:.{decimals}f}" for count in counts]
    exact = Unrounding.of(texts, [blocks] * len(texts))
    restored = [exact.restore(float(text), blocks) for text in texts]
    if exact.less == less:
        assert restored == [count / size for count in counts]
    else:  # both denominators explain every value, as 0 and 1 do
        assert all(
            abs(r - float(t)) <= 10.0**-decimals for r, t in zip(restored, texts, strict=True)
        )


# -- logs ---------------------------------------------------------------------------------


def test_a_v1_log_tells_its_engines_apart_and_sums_its_throughputs() -> None:
    first, second, third = readings(log.frames(DATA / "logs" / "v1.log", NOW))
    assert (first[0].engine, first[0].running, first[0].usage_ratio) == ("0", 1, 0.001)
    assert second[0].engine == "1"
    assert third[0].generation_tokens == pytest.approx(121 + 2505)
    assert (third[0].waiting, third[0].hit_ratio, third[0].preemptions) == (2, 0.5, 3)


def test_a_v0_log_counts_swapped_and_pending_as_waiting() -> None:
    first, second = readings(log.frames(DATA / "logs" / "v0.log", NOW))
    assert (first[0].running, first[0].waiting) == (4, 3)
    assert (first[0].usage_ratio, first[0].pool_blocks) == (0.123, 27896)
    assert second[0].running == 3


@pytest.mark.parametrize("name", ["v0.log", "v1.log"])
@pytest.mark.parametrize("width", [80, 120, 160])
def test_wrapped_lines_are_put_together_again(tmp_path: Path, name: str, width: int) -> None:
    source = DATA / "logs" / name
    lines = source.read_text().splitlines()
    cut = [line[i : i + width] for line in lines for i in range(0, len(line), width)]
    wrapped = tmp_path / name
    wrapped.write_text("\n".join(cut) + "\n")
    assert readings(log.frames(wrapped, NOW)) == readings(log.frames(source, NOW))


def test_lines_in_any_order_are_sorted_by_their_stamps(tmp_path: Path) -> None:
    source = DATA / "logs" / "v1.log"
    turned = tmp_path / "v1.log"
    turned.write_text("\n".join(reversed(source.read_text().splitlines())))
    times = [frame.time for frame in log.frames(turned, NOW)]
    assert times == sorted(times)
    assert {f.time for f in log.frames(source, NOW)} == set(times)


def test_fields_may_be_missing_or_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "odd.log"
    path.write_text("INFO 01-05 09:10:11 x.py:1] GPU KV cache usage: 3.0%, Running: 2 reqs\n")
    ((one,),) = readings(log.frames(path, NOW))
    assert (one.usage_ratio, one.running, one.waiting) == (0.03, 2, None)


def test_a_stamp_without_a_year_is_the_latest_one_that_has_passed() -> None:
    times = [frame.time for frame in log.frames(DATA / "logs" / "v1.log", NOW)]
    assert datetime.fromtimestamp(times[0], UTC) == datetime(2025, 11, 5, 10, 0, 11, tzinfo=UTC)


def test_a_log_without_statistics_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_text("INFO 01-05 09:10:11 nothing to see\n")
    with pytest.raises(InputError, match="--disable-log-stats"):
        list(log.frames(path))


@given(st.text(max_size=400))
def test_no_text_breaks_the_log_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("log") / "any.log"
    path.write_text(text, encoding="utf-8", errors="replace")
    with suppress(InputError):
        list(log.frames(path, NOW))


# -- recordings ---------------------------------------------------------------------------


def test_a_line_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"time": 1, "target": "a", "body": null}\n{"time": "soon"}\n')
    with pytest.raises(InputError, match="line 2"):
        list(pages.frames(path))
    assert CliRunner().invoke(main, ["analyze", "--pages", str(path)]).exit_code == 3


def test_an_engine_that_was_never_reached_cannot_be_judged(tmp_path: Path) -> None:
    path = tmp_path / "down.jsonl"
    line = {"target": "a", "body": None, "error": "connection refused"}
    path.write_text("".join(json.dumps({"time": t} | line) + "\n" for t in range(0, 600, 15)))
    result = CliRunner().invoke(main, ["analyze", "--pages", str(path), "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["engines"][0]["final"]["state"] == "no_data"
