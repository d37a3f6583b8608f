"""The status page and its JSON twin."""

from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fleet_snapshot import HOSTILE, NOW, engine, snapshot

from kvcache_exporter.model import State
from kvcache_exporter.status import engines_json, status_page
from kvcache_exporter.status.page import SHOWN_ENGINES
from kvcache_exporter.trace import POINTS, STEP_SECONDS, Point, Trace

LEAKING = engine("leaking:8000", State.LEAK, orphaned=39)
FINE = engine("fine:8000", State.OK, model=HOSTILE)
DRIFTING = engine("drifting:8000", State.OK, finding=True)


class Tags(HTMLParser):
    """Counts elements and refuses what could run or reach outside."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "iframe", "link", "object")
        for name, value in attrs:
            assert not name.startswith("on")
            assert not (name in ("src", "href") and "//" in (value or ""))
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_most_troubled_engine_comes_first() -> None:
    text = Tags(status_page(snapshot(FINE, DRIFTING, LEAKING))).text

    assert text.index("leaking:8000") < text.index("drifting:8000") < text.index("fine:8000")


def test_a_hostile_model_name_is_only_text() -> None:
    tags = Tags(status_page(snapshot(FINE)))

    assert HOSTILE in tags.text
    assert tags.seen.count("section") == 1


def test_every_engine_has_its_reason_since_when_and_charts() -> None:
    page = status_page(snapshot(LEAKING))

    assert "because of leaking:8000" in page
    assert "for 2.0 h" in page
    assert "orphaned 39" in page
    assert page.count("<svg") == 2  # blocks, and the driver's line beside them


def test_problems_say_what_to_do() -> None:
    assert "check the port" in status_page(snapshot())


def test_a_page_without_engines_says_so() -> None:
    assert "No engine has been seen yet" in status_page(snapshot())


def test_a_thousand_engines_make_a_bounded_page_that_hides_no_trouble() -> None:
    many = [engine(f"t{i}:8000", State.OK) for i in range(1000)]
    page = status_page(snapshot(*many, LEAKING))

    assert "leaking:8000" in page
    assert f"and {1001 - SHOWN_ENGINES} more" in page


def test_the_json_twin_holds_the_same_engines_and_null_for_unknown() -> None:
    data = json.loads(engines_json(snapshot(LEAKING, FINE)))
    first = data["engines"][0]

    assert [one["target"] for one in data["engines"]] == ["leaking:8000", "fine:8000"]
    assert (first["state"], first["used_blocks"], first["hit_ratio"]) == ("leak", 140, None)
    assert first["trace"][-1]["orphaned_blocks"] == 39.0
    assert data["targets"][0]["problems"][0]["code"] == "html"


def test_every_key_of_the_json_is_documented() -> None:
    documented = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    data = json.loads(engines_json(snapshot(LEAKING)))
    keys = {key for kind in ("engines", "targets", "gpus") for key in data[kind][0]}

    assert {key for key in keys | data.keys() if f"`{key}`" not in documented} == set()


def test_a_trace_keeps_its_newest_points_and_tells_none_from_zero() -> None:
    trace = Trace()
    for step in range(POINTS + 10):
        trace = trace.add(Point(step * STEP_SECONDS, 0.0, None, float(step), None))
    points = list(trace.points())

    assert len(points) == POINTS
    assert points[-1] == Point((POINTS + 9) * STEP_SECONDS, 0.0, None, float(POINTS + 9), None)
    assert trace.add(Point(trace.last_time + 1, 5.0, None, None, None)) is trace


@pytest.mark.parametrize("width", [400, 1280])
def test_a_browser_shows_the_page_without_a_sideways_scroll(tmp_path: Path, width: int) -> None:
    """Chromium lays the page out; a script of the test's own reports the widths it needed."""
    chromium = shutil.which("chromium")
    assert chromium, "apt-get install chromium"
    probe = (
        "<script>document.title = document.documentElement.scrollWidth + '/' + innerWidth</script>"
    )
    page = status_page(snapshot(LEAKING, DRIFTING, FINE)).replace("</body>", f"{probe}</body>")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    # A frame of that width: Chromium itself refuses windows narrower than 500 pixels.
    frame = f"<iframe src=page.html width={width} height=900 id=f></iframe>"
    report = "<script>onload=()=>document.title=f.contentDocument.title</script>"
    (tmp_path / "frame.html").write_text(f"<!doctype html>{frame}{report}", encoding="utf-8")
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", "--allow-file-access-from-files",
         f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"file://{tmp_path}/frame.html"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    needed, given = done.stdout.partition("<title>")[2].partition("</title>")[0].split("/")

    assert int(needed) <= int(given)


def test_now_is_the_snapshots_time() -> None:
    assert json.loads(engines_json(snapshot()))["time"] == NOW
