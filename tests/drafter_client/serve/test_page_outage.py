"""The page of `drafter serve` while its verifier, a process, is killed in the middle of an answer and started again."""

import re
from pathlib import Path
from typing import Any

import pytest

from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from tests.browser import opened
from tests.drafter_client.serve.page_steps import answered, ask
from tests.gateway.openai_api.conftest import served
from tests.terminal.slow_verifier import process

pytestmark = pytest.mark.engine("browser")
TEXT = " ".join(f"word {number}" for number in range(100))  # some 900 tokens, of 5 ms each at least


def test_the_page_says_that_the_verifier_is_away_and_the_answer_goes_on(browser: Any) -> None:
    with process() as verifier:
        pair = Pair(verifier.url, DraftModel(Path("2"), "scripted"))
        with served(create_app(pair, Options(), texts=1, queue=1)) as url, opened(browser, url) as page:
            page.get_by_text("Settings").click()
            page.get_by_label("Mode").select_option("off")  # a pass for each token
            ask(page, TEXT)
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
            assert answered(page).locator(".text").inner_text() == TEXT
