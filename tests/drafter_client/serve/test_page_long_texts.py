"""Long answers on the page: what a further part of a text changes is bounded, and the end is what the whole text gives.

The views of texts are driven in the browser without a service: a text comes to them in pieces.
"""

import random
from typing import Any

import pytest

pytestmark = pytest.mark.engine("browser")

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
