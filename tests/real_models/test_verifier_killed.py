"""A verifier that is killed in the middle of a text, and comes back: the text goes on at its token."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from drafter_client import DraftModel, Options, Pair, Tokens
from specpair.child_processes import serving
from tests.real_models.conftest import PROMPTS, SEED, TOKENS

pytestmark = pytest.mark.engine("real")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_goes_on_at_its_token(
    target: dict[str, Any], draft: DraftModel, own_text: Callable[[str, float], list[int]], temperature: float
) -> None:
    expected = own_text("code", temperature)
    options = Options(max_tokens=TOKENS, temperature=temperature, seed=SEED, draft_n=3)
    with ExitStack() as stack:
        first = stack.enter_context(serving.verifier(**target))
        pair = stack.enter_context(Pair(first.url, draft))
        text: list[int] = []
        killed = False
        for event in pair.generate(PROMPTS["code"], options):
            if isinstance(event, Tokens):
                text += [token.id for token in event.tokens]
            if len(text) > TOKENS // 3 and not killed:
                killed = True
                first.process.kill()
                first.process.wait()
                port = int(first.url.rpartition(":")[2])
                again = serving.serve("verifier_server.app:app", serving.variables(**target), port=port)
                stack.enter_context(again)
    assert killed and text == expected
