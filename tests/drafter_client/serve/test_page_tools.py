"""The page: tools, and texts that are long."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.drafter_client.serve.conftest import answered, ask
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
    answered(page, "tools.0.function.parameters#/properties/town")
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


TOKENS = 5000
SEEDS = range(300)
PIECES = [
    *(
        "word ",
        "two words\n",
        "\n",
        "\n\n",
        "# Title\n",
        "- item\n",
        "  - deeper\n",
        "1. one\n",
        "2) two\n",
        "> said\n",
    ),
    *(
        "```",
        "```py\n",
        "~~~\n",
        "def f():  # why\n",
        '"""',
        "| a | b |\n",
        "|---|---|\n",
        "|--",
        "---\n",
        "  indented\n",
    ),
    *("**bold** ", "`code` ", "[there](https://example.org/x) ", "*", "\u202e", "\U0001f600", "<b>", "    ", "-", "1"),
]
BLOCKS = {  # a line to begin with, and what follows again and again: about five tokens
    "paragraphs": ("", "some words that\nfollow.\n\n"),
    "a code block": ("```python\n", "x = f(1)  # why\n"),
    "a list": ("", "- an item of it\n"),
    "a table": ("| a | b |\n|---|---|\n", "| key | value |\n"),
}

# Gives a view each text piece by piece, and returns the HTML at the end, and that of a view which gets all at once.
GROWN = """async ([module, name, texts]) => {
    const View = (await import(new URL(module, document.baseURI)))[name];
    const shown = (pieces) => {
        const root = document.createElement("div");
        const view = new View(root);
        let text = "";
        for (const piece of pieces) {
            text += piece;
            while (!view.update(text));
        }
        return root.outerHTML;
    };
    return texts.map((pieces) => [shown(pieces), shown([pieces.join("")])]);
}"""

# Gives a view a text in pieces, and returns how many nodes each call added or removed, and how many are out of sight.
CHANGED = """async ([module, name, pieces, tokens]) => {
    const View = (await import(new URL(module, document.baseURI)))[name];
    const root = document.querySelector("#messages").appendChild(document.createElement("article"));
    root.className = name === "TokensView" ? "plain tokens" : "text";
    const view = new View(root, () => {});
    const changes = new MutationObserver(() => {});
    changes.observe(root, { childList: true, subtree: true });
    const counts = [];
    let given = tokens ? [] : "";
    for (const piece of pieces) {
        given = tokens ? [...given, { text: piece, source: "accepted" }] : given + piece;
        let done = false;
        while (!done) {
            done = view.update(given);
            const records = changes.takeRecords();
            counts.push(records.reduce((sum, each) => sum + each.addedNodes.length + each.removedNodes.length, 0));
        }
    }
    const isSkipped = (each) => getComputedStyle(each).contentVisibility === "auto";
    const skipped = [...root.querySelectorAll("*")].filter(isSkipped);
    return { counts, skipped: skipped.length, text: root.textContent };
}"""


def test_what_grows_ends_as_what_comes_at_once(page: Any) -> None:
    texts = []
    for seed in SEEDS:
        chance = random.Random(seed)
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 40)))
        cuts = sorted(chance.sample(range(len(text) + 1), min(len(text), chance.randint(0, 30))))
        texts.append([text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)])
    for view in (["./page/markdown.js", "MarkdownView"], ["./page/plain.js", "PlainView"]):
        for pieces, (grown, at_once) in zip(texts, page.evaluate(GROWN, [*view, texts]), strict=True):
            assert grown == at_once, pieces


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_further_piece_changes_little_however_long_the_answer_is(kind: str, page: Any) -> None:
    first, again = BLOCKS[kind]
    pieces = [first, *[again] * (TOKENS // 5)]
    found = page.evaluate(CHANGED, ["./page/markdown.js", "MarkdownView", pieces, False])
    assert max(found["counts"]) <= 30
    assert found["skipped"] > 0 or kind in ("a list", "a table")  # which are one block
    whole = page.evaluate(CHANGED, ["./page/markdown.js", "MarkdownView", ["".join(pieces)], False])
    assert len(whole["counts"]) > 1 and max(whole["counts"]) < TOKENS, "it is drawn in slices"


def test_a_token_more_adds_one_and_parts_are_laid_out_by_themselves(page: Any) -> None:
    tokens = [" word"] * TOKENS
    found = page.evaluate(CHANGED, ["./page/tokens.js", "TokensView", tokens, True])
    assert found["text"] == "".join(tokens)
    assert max(found["counts"]) <= 2  # the token, and the part that it begins
    assert found["skipped"] >= TOKENS // 400 - 1
