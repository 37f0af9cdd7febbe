"""The page as drawn: the network, and outages."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from backends.scripted import Script
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.serve.app import AppOptions, create_app
from gateway.router.messages import NodeSpec
from tests.browser import assert_accessible, opened
from tests.drafter_client.serve.conftest import answered, ask
from tests.drafter_client.support import Held, serving
from tests.gateway.openai_api.conftest import served
from tests.gateway.router.stub_nodes import Link, link, routing
from tests.terminal.slow_verifier import process

pytestmark = pytest.mark.engine("browser")
TEXT = {"prompt": "def f(x):", "max_tokens": 60, "temperature": 0, "stream": True}


class Team(NamedTuple):
    """A drafter, its router, and the verifiers."""

    url: str
    router: str
    verifiers: list[str]
    backends: list[Held]
    away: Link  # to the last verifier
    behind: str  # the address that it leads to


@pytest.fixture
def team() -> Iterator[Team]:
    with ExitStack() as stack:
        backends = [Held(Script(seed=1)) for _ in range(3)]
        urls = [stack.enter_context(serving(each)).url for each in backends]
        away = stack.enter_context(link(urls[2]))
        behind, urls[2] = urls[2], away.url
        router = stack.enter_context(routing(specs=[NodeSpec(each) for each in urls]))
        address = str(router.http.base_url).rstrip("/")
        options = Options(mode=Mode.REMOTE, draft_n=4)
        pair = Pair(address, DraftModel(Path("1"), "scripted"))
        app = create_app(pair, options, texts=1, queue=4, how=AppOptions(network_every=0.05))
        yield Team(stack.enter_context(served(app)), address, urls, backends, away, behind)


def node(page: Any, url: str) -> Any:
    """The box of a node, by its address without its scheme."""
    return page.locator("#network .node").filter(has_text=urlsplit(url).netloc)


def cells(page: Any, url: str) -> list[str]:
    """What the table says of a node."""
    row = page.locator("#network tbody tr").filter(has=page.locator("th", has_text=urlsplit(url).netloc))
    return [str(each) for each in row.locator("td").all_text_contents()]


def test_nodes_links_and_figures_and_a_verifier_that_is_lost_and_comes_back(browser: Any, team: Team) -> None:
    with opened(browser, team.url) as page:
        page.locator("#network > summary").click()
        for url in team.verifiers:
            node(page, url).filter(has_text="verifier, ready").filter(has_text="0 of 4 slots, 0 waiting").wait_for()
        assert page.locator("#network .node").count() == 5 and page.locator("#network .link").count() == 4
        assert all(" ms" in each for each in page.locator("#network .trip").all_text_contents())
        page.locator("#network .sum").filter(has_text="3 of 3 verifiers ready; ").wait_for()
        state, model, took, measured, load, own, *_ = cells(page, team.verifiers[0])
        assert (state, model, load, own) == ("verifier, ready", "scripted-1", "0 of 4 slots, 0 waiting", "0")
        assert took.endswith(" ms") and measured.endswith(f"s ago, from {urlsplit(team.router).netloc}")
        for each in team.backends:
            each.go(30)
        with httpx.stream("POST", f"{team.url}/v1/completions", json=TEXT, timeout=60, trust_env=False) as text:
            page.locator("#network .node.used .own").nth(1).wait_for()  # the router, and the verifier of the text
            assert page.locator("#network .link.used").count() == 2
            for each in team.backends:
                each.go()
            text.read()
        page.locator("#network .sum").filter(has_text="60 tokens generated here.").wait_for()
        team.away.cut()
        lost = node(page, team.verifiers[2])
        lost.filter(has_text="verifier, away").filter(has_text="nothing answers").wait_for()
        page.locator("#network .sum").filter(has_text="2 of 3 verifiers ready; ").wait_for()
        assert page.locator("#network .link.away").count() == 1
        with link(team.behind, urlsplit(team.away.url).port or 0):
            lost.filter(has_text="verifier, ready").wait_for()


def test_it_is_enlarged_read_as_a_table_and_closed(browser: Any, team: Team) -> None:
    with opened(browser, team.url, viewport={"width": 1280, "height": 800}) as page:
        page.locator("#network > summary").click()
        node(page, team.verifiers[0]).filter(has_text="verifier, ready").wait_for()
        assert len({each["x"] for each in boxes(page)}) == 3, "each is set in below the one that asks it"
        assert_accessible(page)
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_role("button", name="Enlarge").click()
        large = page.get_by_role("dialog", name="Network")
        large.get_by_role("rowheader", name=urlsplit(team.router).netloc).wait_for()
        page.wait_for_function("document.querySelectorAll('dialog .under').length === 4")
        assert len({each["x"] for each in boxes(page)}) == 3 and len({each["y"] for each in boxes(page)[2:]}) == 3
        assert_accessible(page)
        page.keyboard.press("Escape")
        large.wait_for(state="hidden")
        assert page.evaluate("document.activeElement.textContent") == "Enlarge"
        page.wait_for_function(
            "document.querySelectorAll('#network .node').length === 5"
        )  # it moves back, and is drawn
        page.locator("#network > summary").click()
        assert page.locator("#network .network").is_hidden()


def test_the_drafter_goes_away_and_comes_back(browser: Any, team: Team) -> None:
    with link(team.url) as way, opened(browser, way.url) as page:
        page.locator("#network > summary").click()
        node(page, team.router).filter(has_text="router, ready").wait_for()
        way.cut()
        page.locator("#network .stale .sum").filter(has_text="The drafter cannot be reached.").wait_for()
        with link(team.url, urlsplit(way.url).port or 0):
            page.locator("#network .network:not(.stale)").wait_for()
            page.goto("about:blank")  # it asks no more, neither for the network nor for anything else
        assert all("net::ERR_" in each for each in page.complaints), page.complaints
        page.complaints.clear()


def boxes(page: Any) -> list[dict[str, float]]:
    """Where the boxes are, in pixels."""
    script = "[...document.querySelectorAll('.node .box')].map((each) => each.getBoundingClientRect().toJSON())"
    found: list[dict[str, float]] = page.evaluate(script)
    return found


STORY = " ".join(f"word {number}" for number in range(100))  # some 900 tokens, of 5 ms each at least


def test_the_page_says_that_the_verifier_is_away_and_the_answer_goes_on(browser: Any) -> None:
    with process() as verifier:
        pair = Pair(verifier.url, DraftModel(Path("2"), "scripted"))
        with served(create_app(pair, Options(), texts=1, queue=1)) as url, opened(browser, url) as page:
            page.get_by_text("Settings").click()
            page.get_by_label("Mode").select_option("off")  # a pass for each token
            ask(page, STORY)
            answer = page.locator("article.assistant").filter(has_text="word 2")
            answer.wait_for()
            verifier.kill()
            told = answer.locator(".problem").filter(has_text=re.compile(r"^waiting for the verifier \(.+\) … \d+ s$"))
            told.wait_for()
            page.get_by_role("status").filter(has_text="Waiting for the verifier (").wait_for()
            assert "word 99" not in answer.inner_text()
            verifier.start()
            answer.filter(has_text=re.compile(r"The verifier was away for \d+ s; then the answer went on\.")).wait_for()
            assert told.count() == 0
            assert answered(page).locator(".text").inner_text() == STORY
