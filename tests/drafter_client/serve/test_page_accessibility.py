"""The page of `drafter serve` in each of its states, as axe-core sees it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser import assert_accessible
from tests.drafter_client.serve.conftest import HELD, MARKDOWN, Held, answered, ask
from tests.gateway.openai_api.parrot import ADD, LOOK, TOOLS

pytestmark = pytest.mark.engine("browser")


def an_answer(page: Any) -> None:
    ask(page, MARKDOWN)
    answered(page)


def sources(page: Any) -> None:
    page.get_by_text("Settings").click()
    page.get_by_label("Told of tokens").select_option("decisions")
    page.get_by_text("Settings").click()
    page.get_by_role("button", name="Sources").click()
    an_answer(page)
    page.locator(".tokens .token").first.hover()


def live_panel(page: Any) -> None:
    page.get_by_text("What the pair does").click()
    page.locator("#condition").filter(has_text="ready").wait_for()
    page.get_by_text("Settings").click()
    page.get_by_label("Mode").select_option("remote")
    page.get_by_label("Draft tokens").fill("4")
    ask(page, "drafted and verified, " * 20)
    answered(page)
    page.locator("#lanes rect").first.wait_for()


def settings(page: Any) -> None:
    page.get_by_text("Settings").click()


def calls(page: Any) -> None:
    page.get_by_text("Tools and JSON").click()
    page.select_option("#form", "json_schema")
    page.fill("#schema", '{"type": "object"}')
    page.fill("#tools", json.dumps(TOOLS))
    ask(page, f"{LOOK}{ADD}|||done")
    answered(page, "The target calls tools")
    page.fill("#tools", "[")


def results(page: Any) -> None:
    page.get_by_text("Tools and JSON").click()
    page.fill("#tools", json.dumps(TOOLS))
    ask(page, f"{LOOK}|||done")
    answered(page, "The target calls tools").get_by_role("button", name="Send the result").click()
    page.locator("article.assistant").filter(has_text="done").wait_for()
    answered(page)


def an_edit(page: Any) -> None:
    an_answer(page)
    page.get_by_role("button", name="Edit").click()


def several_conversations(page: Any) -> None:
    an_answer(page)
    page.get_by_role("button", name="New conversation").click()
    page.evaluate("document.getElementById('aside').classList.add('open')")  # as its button does on a narrow screen


def a_refusal(page: Any) -> None:
    page.get_by_text("Settings").click()
    page.get_by_label("Mode").select_option("fused")  # this verifier does not draft
    ask(page, "refused")
    page.locator("article .problem").wait_for()
    page.complaints.clear()


STATES: dict[str, Callable[[Any], None]] = {
    "empty": lambda page: None,
    "an answer": an_answer,
    "sources": sources,
    "live panel": live_panel,
    "settings": settings,
    "calls": calls,
    "results": results,
    "an edit": an_edit,
    "several conversations": several_conversations,
    "a refusal": a_refusal,
}


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_found_in_the_state(state: str, page: Any) -> None:
    STATES[state](page)
    assert_accessible(page)


def test_nothing_is_found_while_an_answer_is_written(page: Any, parrot: Held) -> None:
    parrot.go_on.clear()
    ask(page, f"before {HELD} behind")
    page.locator("article.assistant").filter(has_text=HELD).wait_for()
    try:
        assert_accessible(page)
    finally:
        parrot.go_on.set()
    answered(page)
