"""Prometheus' own opinion of a page, through ``promtool check metrics``."""

from __future__ import annotations

import shutil
import subprocess

LINT = 3
"""Exit code for a page that parses but does not follow the naming habits."""


def check_metrics(body: bytes) -> tuple[int, str]:
    """(exit code, output): 0 clean, 3 only lint, anything else does not parse."""
    binary = shutil.which("promtool")
    assert binary is not None, "promtool is missing: apt-get install prometheus"
    done = subprocess.run(
        [binary, "check", "metrics"], input=body, capture_output=True, timeout=60, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def parses(body: bytes) -> bool:
    return check_metrics(body)[0] in (0, LINT)
