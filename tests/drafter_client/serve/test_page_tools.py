"""Tools and JSON on the page of `drafter serve`: what a user defines, calls and their results, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.drafter_client.serve.page_steps import answered, ask
from tests.gateway.openai_api.parrot import ADD, LOOK, TOOLS

pytestmark = pytest.mark.engine("browser")
CALLED = "The target calls tools: write what they return."
TWO_CALLS = f"Let me see. {LOOK}{ADD}|||It rains, and it is 3.|||It is dry."


def define(page: Any, text: str) -> None:
    page.get_by_text("Tools and JSON").click()
    page.get_by_label("Tools, as OpenAI's API defines them").fill(text)


def test_calls_are_answered_edited_and_kept(page: Any, tmp_path: Path) -> None:
    define(page, json.dumps(TOOLS))
    ask(page, TWO_CALLS)
    answer = answered(page, CALLED)
    cards = answer.locator(".call")
    assert cards.locator("strong").all_inner_texts() == ["look", "add"]
    assert cards.locator("pre").all_inner_texts() == ['{\n  "town": "Köln"\n}', '{\n  "a": 1,\n  "b": 2\n}']
    assert page.evaluate("document.activeElement.ariaLabel") == "Result of look", "the user writes that next"
    ask(page, "before the results")
    answered(page, "The target waits for what its tools return")
    assert page.input_value("#input") == "before the results"
    page.get_by_role("button", name="Retry").click()
    answered(page, CALLED)
    answer.get_by_label("Result of look").fill("<b>rain</b>")
    answer.get_by_label("Result of add").fill("3")
    answer.get_by_role("button", name="Send the results").click()
    page.locator("article.assistant").filter(has_text="It rains, and it is 3.").wait_for()
    answered(page)
    results = page.locator("article.tool .plain:not(.tokens)")
    assert results.all_inner_texts() == ["<b>rain</b>", "3"] and results.locator("b").count() == 0
    page.get_by_role("button", name="Retry").click()
    assert answered(page).locator(".text").inner_text() == "It rains, and it is 3."
    page.get_by_label("Result of look").get_by_role("button", name="Edit").click()
    page.get_by_role("textbox", name="Edited message").fill("sun")
    page.get_by_role("button", name="Ask again").click()
    answered(page)
    assert results.all_inner_texts() == ["sun", "3"] and page.locator("article").count() == 5

    page.reload()
    page.locator("nav li button").first.click()
    page.get_by_text("Tools and JSON").click()
    assert json.loads(page.get_by_label("Tools, as OpenAI's API defines them").input_value()) == TOOLS
    with page.expect_download() as download:
        page.get_by_role("button", name="Export JSON").click()
    path = tmp_path / "chat.json"
    download.value.save_as(path)
    saved = json.loads(path.read_text(encoding="utf-8"))
    said = saved["messages"]
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [each["tool_call_id"] for each in said[2:4]] == [each["id"] for each in said[1]["tool_calls"]]
    assert saved["tools"] == TOOLS

    page.get_by_role("button", name="New conversation").click()
    assert page.get_by_label("Tools, as OpenAI's API defines them").input_value() == ""
    page.locator("#file").set_input_files(path)
    page.get_by_role("status").filter(has_text="5 messages are here.").wait_for()
    assert page.locator(".call strong").all_inner_texts() == ["look", "add"]
    assert page.get_by_role("button", name="Send the results").count() == 0
    path.write_text('{"messages": [{"role": "user", "content": [1]}]}', encoding="utf-8")
    page.locator("#file").set_input_files(path)
    answered(page, "chat.json is no conversation: message 1 is no text")


def test_what_is_wrong_with_tools_is_said_at_their_field(page: Any) -> None:
    define(page, '[\n{"type": "function"')
    said = page.locator("#tools-problem")
    said.filter(has_text="This is no JSON").wait_for()
    ask(page, "not asked")
    answered(page, "Tools and JSON: This is no JSON")
    assert page.evaluate("document.activeElement.id") == "tools" and page.input_value("#input") == "not asked"
    for text, problem in (
        ('{"a": 1}', "Tools are a list"),
        ('[{"type": "function"}]', 'Tool 1 has no object "function"'),
        ('[{"name": "look"}]', 'Tool 1 is none: it has no "type": "function"'),
        ('[{"type": "function", "function": {}}]', 'Tool 1 has no "name"'),
    ):
        page.fill("#tools", text)
        said.filter(has_text=problem).wait_for()
    page.get_by_role("button", name="Example").click()
    assert said.inner_text() == ""
    page.get_by_label("Tool choice").select_option("get_weather: it must be called")
    # The server's refusal: its grammar cannot keep to such a schema.
    bad = json.loads(page.input_value("#tools"))
    bad[0]["function"]["parameters"] = {"type": "object", "properties": {"town": {"type": "town"}}}
    page.fill("#tools", json.dumps(bad))
    page.press("#input", "Enter")
    answered(page, "tools: calls cannot be made to keep to the parameters")
    assert all("status of 400" in each for each in page.complaints), page.complaints
    page.complaints.clear()


def test_an_answer_keeps_to_a_schema(page: Any) -> None:
    page.get_by_text("Tools and JSON").click()
    page.select_option("#form", "json_schema")
    page.locator("#schema-problem").filter(has_text="A JSON Schema has to stand here").wait_for()
    schema = {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    }
    page.get_by_label("JSON Schema of the answer").fill(json.dumps(schema))
    ask(page, "no JSON at all")
    assert set(json.loads(answered(page).locator(".text").inner_text())) == {"on"}
