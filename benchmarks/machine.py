"""What the numbers were measured on."""

from __future__ import annotations

import platform
from pathlib import Path


def machine() -> str:
    """Name the processor and the Python that the numbers are of."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line for line in info.splitlines() if line.startswith("model name")), ":unknown")
    return f"{model.partition(':')[2].strip()}, Python {platform.python_version()}."
