"""The HTML file of recorded runs in Chromium, opened from the disk."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from drafter_client.statistics import Stats
from drafter_client.trace.writer import TraceFolder
from lab.report.page import page
from lab.report.reader import read_runs
from tests.browser import assert_accessible, chromium, opened
from tests.lab.report.traces import HOSTILE, write_rounds

pytestmark = pytest.mark.engine("browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


def shown(
    browser: Any, folder: Path, *, text: bool = True, at: str = "", **context: Any
) -> AbstractContextManager[Any]:
    """The report of a folder, from the disk. Anything on the console is a failure."""
    path = folder / "report.html"
    path.write_text(page(read_runs(folder), text=text), encoding="utf-8")
    return opened(browser, path.as_uri() + at, **context)


def bars(report: Any, lane: str) -> int:
    """Bars in a lane of the window, once it is drawn."""
    report.locator(".window svg").wait_for()
    count: int = report.locator(f".window rect.{lane}").count()
    return count


def test_lanes_have_all_rounds_and_nothing_is_requested(browser: Any, tmp_path: Path) -> None:
    write_rounds(tmp_path, 10)
    with shown(browser, tmp_path) as report:
        assert bars(report, "pass") == 10 + 1  # the prefill's
        assert (bars(report, "wire"), bars(report, "queue"), bars(report, "drafting")) == (22, 10, 10)
        assert report.locator(".window rect.mode").count() == 2 and report.locator(".window rect.outage").count() == 1
        assert report.evaluate("performance.getEntriesByType('resource').length") == 0
        assert report.locator(".over-time path").count() == 3
        label = report.locator(".window svg").get_attribute("aria-label")
        assert label == "0 to 420 ms of 420 ms, 10 of 10 rounds"


def test_keys_go_through_rounds_and_tokens(browser: Any, tmp_path: Path) -> None:
    write_rounds(tmp_path, 100)
    with shown(browser, tmp_path) as report:
        detail, window = report.locator(".timeline .detail"), report.locator(".window")
        window.focus()
        for keys, said in ((["Home"], 1), (["ArrowRight"] * 2, 3), (["ArrowLeft"], 2), (["End"], 100)):
            for key in keys:
                report.keyboard.press(key)
            detail.filter(has_text=f"Round {said} of 100, lockstep: sent at").wait_for()
        assert "4 judged, 2 accepted, in a pass of 5 positions" in detail.inner_text()
        svg = window.locator("svg")
        report.keyboard.press("0")
        report.locator('.window svg[aria-label="0 to 4020 ms of 4020 ms, 100 of 100 rounds"]').wait_for()
        report.keyboard.press("+")
        report.locator('.window svg[aria-label*="of 4020 ms, 5"]').wait_for()  # half of them, and those at the edges
        assert svg.locator("rect.chosen").count() == 1
        report.get_by_role("button", name="Previous round").click()
        detail.filter(has_text="Round 99 of 100").wait_for()

        report.locator(".tokens").focus()
        for _ in range(4):
            report.keyboard.press("ArrowRight")
        told = report.locator(".by-source .detail").inner_text()
        assert (
            told.startswith('Token 4 of 301, "word ": recovered')
            and '; in place of "word " of round 1, with a probability of 70.0 % with the drafter; known at' in told
        )
        report.locator(".tokens .token").nth(300).wait_for()
        assert report.locator(".tokens .token.accepted").count() == 200
        assert report.locator(".tokens .token.lookup").count() == 100


def test_hostile_texts_are_shown_as_they_are(browser: Any, tmp_path: Path) -> None:
    write_rounds(tmp_path, 3, HOSTILE)
    with shown(browser, tmp_path) as report:
        report.locator(".window").focus()
        report.keyboard.press("Home")
        report.locator(".tokens .token").first.wait_for()
        tokens = report.locator(".tokens").inner_text()
        assert "</script><script>window.broken = 1</script>" in tokens and "U+202E" in tokens and "U+001B" in tokens
        assert "<script>" in report.locator(".timeline .detail").inner_text()
        assert report.locator("main script, img, main a").count() == 0
        assert report.evaluate("window.broken") is None


def test_no_other_script_may_run(browser: Any, tmp_path: Path) -> None:
    write_rounds(tmp_path, 1)
    with shown(browser, tmp_path) as report:
        refused = report.evaluate(
            """() => new Promise((done) => {
                addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
                const script = document.createElement("script");
                script.textContent = "window.broken = 1";
                document.body.append(script);
            })"""
        )
        assert refused.startswith("script-src") and report.evaluate("window.broken") is None
        report.complaints.clear()  # Chromium tells of it on the console, too


def test_it_is_accessible(browser: Any, tmp_path: Path) -> None:
    write_rounds(tmp_path, 4)
    with TraceFolder(tmp_path).run(Stats(mode="target")):
        pass
    with shown(browser, tmp_path) as report:
        for part in (".window", ".tokens:visible"):
            report.locator(part).first.focus()
            report.keyboard.press("ArrowRight")
        report.get_by_text("What the words mean").click()
        assert_accessible(report)
