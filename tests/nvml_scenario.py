"""Scenarios for the fake driver in ``tests/fake_pynvml``."""

import json
import os
from pathlib import Path

FAKE = Path(__file__).parent / "fake_pynvml"

H200_TOTAL, H200_RESERVED = 150_754_820_096, 644_939_776
"""Measured on an H200, driver 580, with nothing running."""


def gpu(letter, used=0, *, total=H200_TOTAL, reserved=H200_RESERVED, **more):
    memory = {"total": total, "used": used, "reserved": reserved, "free": total - used - reserved}
    return {"uuid": f"GPU-{letter}", **memory, **more}


class Driver:
    """A scenario in a file; assign to ``says`` to change it while the exporter runs."""

    def __init__(self, path):
        self.path = path

    def says(self, *devices, **scenario):
        text = json.dumps({"devices": devices, **scenario})
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        os.replace(fresh, self.path)

    @property
    def environment(self):
        return {"PYTHONPATH": str(FAKE), "FAKE_NVML": str(self.path)}
