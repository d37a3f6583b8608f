"""Write dashboards/*.json from boards/, or say with --check whether they are up to date.

`python -m grafana.build [--check]`; exit 1 when --check found a difference. A folder in
boards/ is a dashboard.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import yaml

HERE = Path(__file__).parent
OUT = HERE / "dashboards"
THRESHOLDS = HERE.parent / "alerting" / "thresholds.yml"


def documents() -> dict[Path, str]:
    """Make the text of every dashboard, by the file it belongs in."""
    thresholds = yaml.safe_load(THRESHOLDS.read_text())
    boards = sorted(path.parent.name for path in (HERE / "boards").glob("*/__init__.py"))
    made = (import_module(f"grafana.boards.{name}").board(thresholds) for name in boards)
    return {OUT / f"{one['uid']}.json": json.dumps(one, indent=1) + "\n" for one in made}


def main() -> int:
    """Write what differs, and remove what no board makes any more."""
    wanted = documents()
    present = {path: path.read_text() for path in OUT.glob("*.json")}
    if "--check" in sys.argv[1:]:
        return int(wanted != present)
    for path in present.keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
