"""What all tests share: golden files, rewritten by ``pytest --update`` for a person to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_file import Golden
from hypothesis import HealthCheck, settings

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
