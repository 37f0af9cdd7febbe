"""The page of the verifier in a real browser, Chromium without a window, driven by Playwright."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from backends.scripted import ScriptedBackend
from tests.accessibility import assert_accessible
from tests.browser import chromium, opened
from tests.gateway.router.stub_nodes import link
from tests.verifier_server.conftest import SCRIPT, LiveServer, settings
from tests.verifier_server.engine.bench import plain

pytestmark = pytest.mark.engine("browser")
PROMPT = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT, 12)
OPEN = "#sessions tbody tr:not(.ended):has(.bar)"
ENDED = "#sessions tbody tr.ended"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    verifier = LiveServer(settings(), ScriptedBackend(SCRIPT, slots=4))
    verifier.wait_until_ready()
    yield verifier
    verifier.close()


@pytest.fixture
def page(browser: Any, live: LiveServer) -> Iterator[Any]:
    """The page. The test fails for anything on the console."""
    with opened(browser, live.url) as shown:
        shown.locator("#condition").filter(has_text="ready").wait_for()
        yield shown


def begin(live: LiveServer, name: str) -> None:
    """A session with its first token."""
    live.post("/prefill", {"session_id": name, "prompt_ids": PROMPT, "max_tokens": len(TEXT)})


def bars(page: Any, at_least: int) -> Any:
    """The passes on the strip, once there are so many."""
    found = page.locator("#passes svg .time")
    found.nth(at_least - 1).wait_for(state="attached")
    return found


def test_a_session_comes_and_goes_and_its_passes_move_the_strip(page: Any, live: LiveServer) -> None:
    begin(live, "one")
    row = page.locator(OPEN)
    row.filter(has_text=f"3 + 1 of {len(TEXT)}").wait_for()
    first = float(bars(page, 1).first.get_attribute("x"))
    live.post("/verify", {"session_id": "one", "position": 4, "draft_tokens": [*TEXT[1:4], 0]})
    row.filter(has_text="75 %").wait_for()
    assert float(bars(page, 2).first.get_attribute("x")) == first - 1, "each pass moves the others to the left"
    assert page.locator("#passes svg .accepted").count() == page.locator("#passes svg .rejected").count() == 1
    assert "The last 2 passes:" in page.locator("#passes .note").inner_text()
    assert page.locator("#usage tbody tr").inner_text().startswith("without a key")
    live.post("/verify", {"session_id": "one", "position": 8, "draft_tokens": TEXT[5:]})
    page.locator(ENDED).filter(has_text="ended: length").wait_for()
    row.wait_for(state="detached")
    page.locator("#sessions .note").filter(has_text="1 further session").wait_for()
    assert live.http.delete("/sessions/one").status_code == 200
    page.locator("#sessions .note", has_text="further").wait_for(state="detached")


def test_a_pass_is_described_where_it_is_pointed_at_or_chosen_with_the_keyboard(page: Any, live: LiveServer) -> None:
    live.post("/generate", {"prompt_ids": PROMPT, "max_tokens": 4})
    bars(page, 4)
    page.locator(".plot svg").first.hover(position={"x": 5, "y": 5})
    assert page.locator(".detail").inner_text().startswith("Point at a pass")
    plot = page.get_by_role("group", name="The last passes")
    plot.press("ArrowLeft")
    latest = page.locator(".detail").inner_text()
    assert "for 1 token of 1 session; 1 token committed" in latest
    for _ in range(3):
        plot.press("ArrowLeft")
    assert "for 3 tokens of 1 session, 2 read without judging" in page.locator(".detail").inner_text()
    plot.press("Escape")
    assert page.locator(".detail").inner_text().startswith("Point at a pass")


def test_it_says_that_the_verifier_is_away_and_comes_back_by_itself(page: Any, live: LiveServer) -> None:
    with link(live.url) as away:
        page.goto(away.url)
        page.locator("#condition").filter(has_text="ready").wait_for()
    page.locator("#state.away").filter(has_text="The verifier cannot be reached.").wait_for()
    assert page.locator(".value").first.evaluate("value => getComputedStyle(value).opacity") == "0.5"
    with link(live.url, urlsplit(away.url).port or 0):
        page.locator("#state.ready").wait_for()
        assert all("net::ERR_" in each for each in page.complaints), page.complaints
        page.complaints.clear()
        begin(live, "later")
        page.locator(OPEN).filter(has_text="3 + 1").wait_for()
        live.http.delete("/sessions/later")
        page.locator(OPEN).wait_for(state="detached")
        page.goto("about:blank")  # before the link is cut


def test_it_asks_for_the_key(browser: Any) -> None:
    keyed = LiveServer(settings(api_key="s3cret"), ScriptedBackend(SCRIPT))
    keyed.wait_until_ready()
    try:
        with opened(browser, keyed.url) as page:
            page.locator("#state.away").filter(has_text="This verifier wants its API key.").wait_for()
            page.keyboard.type("wrong")  # the field has the focus
            page.keyboard.press("Enter")
            page.locator("#condition").filter(has_text="does not take the key").wait_for()
            page.get_by_label("Key of this verifier").fill("s3cret")
            page.keyboard.press("Enter")
            page.locator("#state.ready").wait_for()
            page.get_by_label("Key of this verifier").wait_for(state="hidden")
            assert all("401" in each for each in page.complaints) and len(page.complaints) == 2
            page.complaints.clear()
            assert page.locator("#usage tbody th").inner_text() == "default"
            page.goto("about:blank")  # its stream ends
    finally:
        keyed.close()


def test_nothing_is_found_by_axe_and_a_narrow_screen_is_wide_enough(page: Any, live: LiveServer) -> None:
    begin(live, "seen")
    live.post("/verify", {"session_id": "seen", "position": 4, "draft_tokens": [*TEXT[1:4], 0]})
    page.locator(OPEN).filter(has_text="75 %").wait_for()
    assert_accessible(page)
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Switch to light colours").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    live.http.delete("/sessions/seen")


def test_another_process_at_the_same_address_is_shown_from_its_beginning(browser: Any, live: LiveServer) -> None:
    other = LiveServer(settings(), ScriptedBackend(SCRIPT))
    other.wait_until_ready()
    try:
        with link(live.url) as first, opened(browser, first.url) as page:
            live.post("/generate", {"prompt_ids": PROMPT, "max_tokens": 4})
            bars(page, 4)
            page.locator(ENDED).wait_for()
            first.cut()
            page.locator("#state.away").wait_for()
            with link(other.url, urlsplit(first.url).port or 0):
                page.locator("#state.ready").wait_for()
                page.locator("#passes .note").filter(has_text="No passes yet.").wait_for()
                page.locator(ENDED).wait_for(state="detached")
                page.goto("about:blank")  # before the link is cut
            page.complaints.clear()
    finally:
        other.close()


def test_the_last_minute_is_counted_in_steps_of_half_a_second(page: Any) -> None:
    found = page.evaluate("""async () => {
        const { History } = await import("./page/history.js");
        const history = new History(10000);
        history.level(10000, { waiting: 3, sessions: 1, cached: 0.5 });
        const each = { queue_ms: 7, committed: 4, judged: 6, accepted: 3 };
        history.passes(12250, [{ ...each, ended_ms: 100, took_ms: 100 }, { ...each, ended_ms: 1000, took_ms: 750 }]);
        history.move(13000);
        const last = (value) => history.series(value).slice(-6);
        return {
            busy: last((step) => step.busy),
            committed: last((step) => step.committed),
            waiting: last((step) => step.waiting),
            before: history.series((step) => step.busy).slice(0, -6).some((each) => each !== null),
            over: history.over(60, "committed"),
            waited: history.most(10, "waited"),
        };
    }""")
    assert found["busy"] == [0, 0, 100, 500, 250, 0], "a pass counts in each step by the time that it took of it"
    assert found["committed"] == [0, 0, 4, 0, 4, 0] and found["waiting"] == [3] * 6
    assert (found["before"], found["over"], found["waited"]) == (False, [8, 3], 7)
