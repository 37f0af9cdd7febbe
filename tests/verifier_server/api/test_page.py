"""The page of the verifier in a real browser, Chromium without a window, driven by Playwright."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from backends.scripted import ScriptedBackend
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
