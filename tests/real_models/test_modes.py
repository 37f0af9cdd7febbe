"""The text is the target's own in every mode, at both temperatures, token for token."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafter_client import DraftModel, Mode, Options, Pair, Tokens
from drafter_client.errors import VocabularyMismatch
from scripts import real_models
from specpair.child_processes import serving
from specpair.child_processes.serving import Server
from specpair.engines.load_options import LoadOptions
from tests.real_models.conftest import PROMPTS, SEED, TOKENS, written

pytestmark = pytest.mark.engine("real")

WAYS = {
    "remote": Options(mode=Mode.REMOTE),
    "remote, drafts of 5": Options(mode=Mode.REMOTE, draft_n=5),
    "lockstep": Options(mode=Mode.REMOTE, draft_n=4, lockstep=True),
    "fused": Options(mode=Mode.FUSED, draft_n=4),
    "target": Options(mode=Mode.TARGET),
    "auto": Options(mode=Mode.AUTO),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("way", WAYS)
def test_text_is_the_targets_own(
    pair: Pair, own_text: Callable[[str, float], list[int]], way: str, prompt: str, temperature: float
) -> None:
    options = replace(WAYS[way], max_tokens=TOKENS, temperature=temperature, seed=SEED)
    generation = pair.generate(PROMPTS[prompt], options)
    assert written(generation) == own_text(prompt, temperature)
    if options.draft_n is not None:
        assert generation.stats.accepted > 0, "the models agree somewhere"


def test_gemma_drafts_for_qwen(verifier: Server, folder: Path, own_text: Callable[[str, float], list[int]]) -> None:
    gemma = DraftModel(folder / real_models.FOREIGN.name, engine=LoadOptions(threads=1))
    with pytest.raises(VocabularyMismatch, match="--translate"):
        Pair(verifier.url, gemma)
    accepted = 0
    with Pair(verifier.url, replace(gemma, translate=True)) as pair:
        for temperature in (0.0, 0.8):
            for prompt in PROMPTS:
                options = Options(max_tokens=TOKENS, temperature=temperature, seed=SEED, draft_n=3)
                generation = pair.generate(PROMPTS[prompt], options)
                assert written(generation) == own_text(prompt, temperature)
                accepted += generation.stats.accepted
    assert accepted > 0, "the models agree somewhere"


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
