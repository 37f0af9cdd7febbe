"""The page of `drafter serve` in a real browser, Chromium without a window, driven by Playwright."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser import opened
from tests.drafter_client.serve.conftest import HELD, MARKDOWN, Held, answered, ask, drafter
from tests.gateway.router.stub_nodes import link

pytestmark = pytest.mark.engine("browser")

HOSTILE = (
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'> [a](javascript:window.broken=3) "
    "[b](data:text/html,x) ![c](https://example.invalid/c.png) \x1b[31mred\x1b[0m \u202egnp.exe\u202c \x07"
)


def test_a_chat_with_markdown(page: Any) -> None:
    ask(page, MARKDOWN)
    answer = answered(page)
    assert answer.get_attribute("aria-busy") == "false"
    end = "(list) => list.scrollHeight - list.scrollTop - list.clientHeight"
    assert page.locator("#messages").evaluate(end) < 2, "the end of the answer is in view"
    text = answer.locator(".text")
    assert text.locator("h3").inner_text() == "Title"
    assert [each.inner_text() for each in text.locator("strong, em, del").all()] == ["bold", "leaning", "gone"]
    assert text.locator(":not(pre) > code").inner_text() == "a < b"
    assert "2 * 3 * 4, snake_case_name." in text.inner_text()
    assert text.locator("ul ul li").inner_text() == "deeper" and text.locator("ol").get_attribute("start") == "3"
    assert [each.inner_text() for each in text.locator("td").all()] == ["1", "2 | 3"]
    assert text.locator("blockquote").inner_text() == "said"
    assert text.locator("pre").inner_text().rstrip() == MARKDOWN.partition("python\n")[2].partition("\n```")[0]
    assert [each.inner_text() for each in text.locator("pre .k").all()] == ["def", "return"]
    assert text.locator("pre .c").inner_text() == "# why"
    assert text.locator("a").get_attribute("rel") == "noopener noreferrer nofollow"
    assert text.locator("a + small").inner_text() == "(example.org)"
    assert "draft tokens accepted" in answer.inner_text() or "tokens/s" in answer.inner_text()


def test_a_hostile_text_stays_text(page: Any) -> None:
    ask(page, HOSTILE)
    answer = answered(page)
    for shown in (answer.locator(".text"), page.locator("article.user .plain:not(.tokens)")):
        assert shown.locator("script, img").count() == 0
        assert shown.locator(".escaped").all_inner_texts() == [
            *("U+001B", "U+001B", "U+202E", "U+202C", "U+0007"),
        ]
        assert "<script>window.broken = 1</script>" in shown.inner_text()
    assert [each.get_attribute("href") for each in answer.locator("a").all()] == ["https://example.invalid/c.png"]
    assert page.locator("nav script, nav img").count() == 0
    isolated = answer.locator(".text p").evaluate("node => getComputedStyle(node).unicodeBidi")
    assert isolated == "isolate"
    assert page.evaluate("window.broken") is None


def test_an_answer_is_stopped_and_asked_for_again(page: Any, parrot: Held) -> None:
    parrot.go_on.clear()
    ask(page, f"before {HELD} behind")
    page.locator("article.assistant").filter(has_text=HELD).wait_for()
    assert page.locator("#conversations").get_by_role("button", name=f"before {HELD} behind", exact=True).is_visible()
    page.keyboard.press("Escape")
    answer = answered(page, "Stopped.")
    assert answer.locator(".text").inner_text() == f"before {HELD}"
    parrot.go_on.set()
    page.get_by_role("button", name="Retry").click()
    assert answered(page).locator(".text").inner_text() == f"before {HELD} behind"
    assert page.locator("article").count() == 2


def test_a_message_is_edited_and_conversations_are_kept_and_exported(page: Any, tmp_path: Path) -> None:
    ask(page, "one")
    answered(page)
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("textbox", name="Edited message").fill("two")
    page.get_by_role("button", name="Ask again").click()
    page.locator("article.assistant").filter(has_text="two").wait_for()
    answered(page)
    page.get_by_text("Settings").click()
    page.get_by_label("System prompt", exact=True).fill("Be brief")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_role("button", name="New conversation").focus()  # the field changes when it is left
    with page.expect_download() as download:
        page.get_by_role("button", name="Export JSON").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert saved == {
        "messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "two"},
        ]
    }
    with page.expect_download() as download:
        page.get_by_role("button", name="Export Markdown").click()
    assert "## assistant\n\ntwo\n" in Path(download.value.path()).read_text(encoding="utf-8")
    page.get_by_role("button", name="New conversation").click()
    assert page.locator("article").count() == 0
    page.reload()
    page.get_by_role("button", name="two", exact=True).click()
    assert page.locator("article .text").inner_text() == "two"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete: two").click()
    assert page.locator("article").count() == page.locator("nav li").count() == 0


def test_the_drafter_goes_away_in_the_middle_and_comes_back(page: Any, parrot: Held, url: str) -> None:
    with link(url) as away:
        page.goto(away.url)
        parrot.go_on.clear()
        ask(page, f"before {HELD} behind")
        page.locator("article.assistant").filter(has_text=HELD).wait_for()
    answer = answered(page, "The connection to the drafter broke off.")
    assert answer.locator(".text").inner_text() == f"before {HELD}"
    assert "Retry asks again" in answer.inner_text()
    parrot.go_on.set()
    ask(page, "again")
    answered(page, "The drafter cannot be reached.")
    assert all("net::ERR_" in each for each in page.complaints), page.complaints
    page.complaints.clear()
    with link(url, urlsplit(away.url).port or 0):
        page.get_by_role("button", name="Retry").click()
        assert answered(page).locator(".text").inner_text() == "again"


def test_each_token_is_shown_by_its_source(page: Any) -> None:
    page.get_by_text("Settings").click()
    page.get_by_label("Told of tokens").select_option("decisions")
    page.get_by_role("button", name="Sources").click()
    ask(page, "<b>two\u202e words")
    answer = answered(page)
    tokens = answer.locator(".tokens .token")
    assert "".join(tokens.all_inner_texts()) == "<b>twoU+202E words" and tokens.locator("b").count() == 0
    assert answer.locator(".text").is_hidden()
    classes = {each.get_attribute("class").split()[1] for each in tokens.all()}
    assert classes <= {"accepted", "recovered", "bonus", "target_decoded", "forced"}
    tokens.first.hover()
    answer.locator(".detail").filter(has_text='"<": bonus').wait_for()
    answer.locator(".tokens").press("ArrowRight")
    answer.locator(".detail").filter(has_text='"b": ').wait_for()
    told = answer.locator(".detail").inner_text()
    assert "probability with the target 1" in told and 'rank 1 with the target, whose likeliest are "b" ' in told
    page.get_by_role("button", name="Sources").click()
    assert answer.locator(".tokens").is_hidden() and answer.locator(".text").is_visible()


def test_looked_up_tokens_have_a_mark_and_sources_are_kept_within_a_budget(
    page: Any, parrot: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A target as slow as a model: else it writes what it is sent drafts of before they are there.
    monkeypatch.setattr(parrot, "script", replace(parrot.script, seconds_per_pass=0.005))
    page.get_by_text("Settings").click()
    page.get_by_label("Mode").select_option("remote")
    page.get_by_label("Draft tokens").fill("4")  # so that it drafts, however fast the target is
    page.get_by_role("button", name="Sources").click()
    page.evaluate("localStorage.setItem('specpair.sources-of.older', '1 ' + 'x'.repeat(399900))")
    text = "drafted and verified, " * 20
    ask(page, text)
    marks = "nodes => nodes.map(each => each.className)"
    before = answered(page).locator(".tokens .token").evaluate_all(marks)
    assert "token accepted lookup" in before
    assert page.evaluate("localStorage.getItem('specpair.sources-of.older')") is None, "the oldest was dropped"
    page.reload()
    tokens = page.locator("article.assistant .tokens .token")
    tokens.first.wait_for()
    assert tokens.evaluate_all(marks) == before and "".join(tokens.all_inner_texts()) == text
    tokens.nth(before.index("token accepted lookup")).dispatch_event("pointerover")
    page.locator(".detail").filter(
        has_text="it was looked up in the text; rank and probabilities are not kept"
    ).wait_for()


def test_what_the_pair_does_is_shown_as_it_happens(page: Any) -> None:
    page.get_by_text("What the pair does").click()
    page.locator("#condition").filter(has_text="ready; 0 texts under way, 0 waiting").wait_for()
    page.get_by_text("Settings").click()
    page.get_by_label("Mode").select_option("remote")
    page.get_by_label("Draft tokens").fill("4")
    ask(page, "drafted and verified, " * 20)
    answered(page)
    page.locator("#now").filter(has_text="mode remote: ").wait_for()
    assert "tokens/s" in page.locator("#now").inner_text()
    assert page.locator("#lanes rect").count() > 0
    assert "rounds; the last took" in page.locator("#lanes svg").get_attribute("aria-label")


def test_the_target_alone_is_measured_beside_the_pair(browser: Any, parrot_url: str) -> None:
    with drafter(parrot_url) as url, opened(browser, url) as page:
        _measure_the_target_alone(page)


def _measure_the_target_alone(page: Any) -> None:
    page.get_by_text("What the pair does").click()
    alone = page.locator("#alone")
    alone.filter(has_text="The target alone: not measured yet.").wait_for()
    page.get_by_text("Settings").click()
    page.get_by_label("Mode").select_option("remote")
    ask(page, "drafted and verified, " * 20)
    answered(page)
    page.locator("#why").filter(has_text="Why this mode: it was chosen").wait_for()
    page.get_by_role("button", name="Measure the target alone").click()
    measured = r"The target alone: [\d.]+ tokens/s, measured at .+ with 32 tokens in mode target\. "
    pair = r"The last text in mode remote: [\d.]+ tokens/s, [\d.]+ times as fast\."
    alone.filter(has_text=re.compile(measured + pair)).wait_for()
    assert page.locator("article").count() == 2, "the measurement is no part of the conversation"


def test_images_are_refused_in_words(page: Any) -> None:
    page.evaluate("""() => {
        const files = new DataTransfer();
        files.items.add(new File(["x"], "x.png", { type: "image/png" }));
        document.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
    }""")
    answered(page, "Images and other files are not taken")


def test_it_is_used_with_the_keyboard_alone_and_on_a_narrow_screen(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.activeElement.id") == "input"
    page.keyboard.type("typed")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("below")
    page.keyboard.press("Enter")
    assert answered(page).locator(".text").inner_text() == "typed below"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Send"
    page.get_by_role("button", name="Conversations").press("Enter")
    assert page.get_by_role("button", name="New conversation").is_visible()
    page.keyboard.press("Escape")
    assert page.get_by_role("button", name="New conversation").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
