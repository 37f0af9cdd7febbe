"""The page of `drafter serve` in a browser, on a model that answers what the user says."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from drafter_client.serve.live import Feed
from specpair.engines.backend import Logits
from tests.browser import SECONDS, chromium, opened
from tests.gateway.openai_api.conftest import served
from tests.gateway.openai_api.parrot import Parrot, parrot_alone

HELD = "#HELD#"  # behind it, the target waits until the test lets it go on


class Held(Parrot):
    """A parrot that can be made to wait in the middle of an answer. `|||` parts its answers to one message of the
    user's, the next ones of which follow results of tools."""

    def __init__(self) -> None:
        super().__init__(context=16384)
        self.go_on = threading.Event()

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        answered = bytes(token for token in tokens if token < 256).rpartition(b"<assistant>")[2]
        if answered.endswith(HELD.encode()):
            assert self.go_on.wait(SECONDS), "the test did not let it go on"
        return super().logits_after(tokens)

    def wanted(self, prompt: bytes) -> bytes:
        answers = super().wanted(prompt).split(b"|||")
        return answers[min(len(answers), prompt.rpartition(b"<user>")[2].count(b"<assistant>")) - 1]


@pytest.fixture(scope="module")
def parrot() -> Held:
    return Held()


@pytest.fixture(scope="module")
def parrot_url(parrot: Held) -> Iterator[str]:
    """The address of the verifier."""
    with parrot_alone(parrot) as address:
        yield address


@pytest.fixture(scope="module")
def url(parrot_url: str) -> Iterator[str]:
    """The address of a `drafter serve`."""
    with drafter(parrot_url) as address:
        yield address


@contextmanager
def drafter(verifier: str) -> Iterator[str]:
    """A `drafter serve` whose pair has learnt nothing yet."""
    feed = Feed()
    pair = Pair(verifier, DraftModel(Path("2"), "scripted"), texts=4, observer=feed)
    with served(create_app(pair, Options(), texts=4, queue=16, feed=feed)) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """The page. The test fails for anything on the console."""
    with opened(browser, url) as shown:
        yield shown


COMPLETE = "The answer is complete."
MARKDOWN = """# Title

Some **bold**, *leaning* and `a < b` code, 2 * 3 * 4, snake_case_name.

- one
- two
  - deeper

3. third

| a | b |
|---|---|
| 1 | 2 \\| 3 |

> said

```python
def f(x):
    \"\"\"Long
    string.\"\"\"
    return "text"  # why
```
[there](https://example.org/path) and ~~gone~~"""


def ask(page: Any, text: str) -> None:
    page.fill("#input", text)
    page.press("#input", "Enter")


def answered(page: Any, status: str = COMPLETE) -> Any:
    """The last answer, when the status line says `status`."""
    page.get_by_role("status").filter(has_text=status).wait_for()
    return page.locator("article.assistant").last
