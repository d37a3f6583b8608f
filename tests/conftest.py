"""What tests share: golden files, rewritten by ``pytest --update``, and an auditor unhurried."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_file import Golden
from hypothesis import HealthCheck, settings

from kvcache_exporter.vllm_plugin import auditor

# A busy machine must not fail a test: no example has a deadline of its own.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a file; with ``--update`` write the file first."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; see --update"

    return compare


@pytest.fixture
def cheap_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may make a sample of the auditor seem dear; only one test is about that."""
    monkeypatch.setattr(auditor, "COST_SHARE", 1e9)
    monkeypatch.setattr(auditor, "COUNT_SHARE", 1e9)
