"""docs/gpus.md names every problem a GPU can have, and only numbers that were printed."""

import ast
import json
from pathlib import Path

import pytest

from kvcache_exporter.gpus import _nvml_words

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "gpus.md").read_text()
PROOF = json.loads((ROOT / "tests" / "data" / "h200x2-gpu-proof.json").read_text())
PACKAGE = ROOT / "kvcache_exporter"
MODULES = [
    *sorted((PACKAGE / "gpus").glob("*.py")),
    *sorted((PACKAGE / "hosts").glob("*.py")),
]


def codes():
    """The first argument of every ``Problem(...)``, and the codes NVML's error table maps to."""
    found = {code for code, _ in _nvml_words._CAUSES.values()} | {"dcgm_frozen"}
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                first = node.args[0]
                found |= {first.value} if isinstance(first, ast.Constant) else set()
    return sorted(found)


@pytest.mark.parametrize("code", codes())
def test_every_problem_is_documented(code):
    assert f"`{code}`" in TEXT


def test_the_numbers_of_the_proof_are_those_it_printed():
    cost = PROOF["cost_per_cycle"]
    for number in (
        f"{cost['wall_median_ms']:.2f} ms",
        f"{cost['cpu_exporter_ms']:.2f} ms CPU",
        f"{cost['cpu_child_ms']:.1f} ms in the child",
        f"{cost['child_resident_bytes'] / 1e6:.0f} MB",
        f"first read took {PROOF['first_read_seconds']:.1f} s",
        f"cost {PROOF['hung']['wall_seconds']:.1f} s once",
        PROOF["gpus"][0]["driver"],
    ):
        assert number in " ".join(TEXT.split()), number
