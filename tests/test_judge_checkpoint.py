"""The checkpoint: what is written comes back, what is damaged is set aside, never a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcache_exporter.judge import Judge
from kvcache_exporter.model import State
from kvcache_exporter.state_file import checkpoint, plain
from tests.judging import HOUR, POOL, Engine, judge_all


@pytest.fixture(scope="module")
def leaking() -> tuple[Engine, Judge]:
    """An engine that leaks, and the judge who knows."""
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(6 * HOUR))
    judge_all(judge, engine.idle(60))
    engine.lost = 0.05 * POOL
    judge_all(judge, engine.busy(2 * HOUR))
    assert judge.leak.active
    return engine, judge


def test_a_restart_of_the_exporter_forgets_no_verdict(
    tmp_path: Path, leaking: tuple[Engine, Judge]
) -> None:
    engine, judge = leaking
    path = tmp_path / "state"
    checkpoint.save(path, {"engine": {"0": judge}})
    judges, problem = checkpoint.load(path)
    assert problem is None
    again = judges["engine"]["0"]
    assert repr(plain.dump(again.history)) == repr(plain.dump(judge.history))
    assert repr(again.leak) == repr(judge.leak)
    last = judge_all(again, engine.busy(60))[-1]
    assert (last.state, last.leak_active) == (State.LEAK, True)
    assert judge.judgement is not None
    assert last.since == judge.judgement.since


def test_no_file_is_no_problem(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path / "state") == ({}, None)


def test_a_newer_format_is_set_aside(tmp_path: Path, leaking: tuple[Engine, Judge]) -> None:
    path = tmp_path / "state"
    checkpoint.save(path, {"engine": {"0": leaking[1]}})
    content = bytearray(path.read_bytes())
    content[5] += 1
    path.write_bytes(content)
    judges, problem = checkpoint.load(path)
    assert judges == {}
    assert problem is not None
    assert f"its format is {checkpoint.VERSION + 1}" in problem.text
    assert not path.exists()
    assert (tmp_path / "state.corrupt").read_bytes() == content


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_any_damage_is_noticed(
    tmp_path: Path, leaking: tuple[Engine, Judge], data: st.DataObject
) -> None:
    path = tmp_path / "state"
    checkpoint.save(path, {"engine": {"0": leaking[1]}})
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    path.write_bytes(content)
    judges, problem = checkpoint.load(path)
    assert (judges, problem is None) == ({}, False)


@given(content=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_foreign_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    judges, problem = checkpoint.load(path)
    assert judges == {}
    assert problem is not None
    assert problem.code == "checkpoint_unusable"


def test_an_attribute_of_another_version_is_refused() -> None:
    state = plain.dump(Judge().history)
    state["surprise"] = 1
    with pytest.raises(ValueError, match="other attributes"):
        plain.load(state)


def test_two_exporters_cannot_share_a_file(tmp_path: Path) -> None:
    other = checkpoint.locked(tmp_path / "state")
    with checkpoint.locked(tmp_path / "state"), pytest.raises(checkpoint.LockedError):
        other.__enter__()
    with checkpoint.locked(tmp_path / "state"):
        pass


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, leaking: tuple[Engine, Judge]) -> None:
    path = tmp_path / "state"
    checkpoint.save(path, {"engine": {"0": leaking[1]}})
    before = path.read_bytes()
    (tmp_path / "state.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        checkpoint.save(path, {})
    assert path.read_bytes() == before
