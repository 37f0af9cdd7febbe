"""A draft model of another family and vocabulary drafts through text: the text stays the target's own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drafter_client import DraftModel, Options, Pair
from drafter_client.errors import VocabularyMismatch
from scripts import real_models
from specpair.child_processes.serving import Server
from specpair.engines.load_options import LoadOptions
from tests.real_models.conftest import PROMPTS, SEED, TOKENS, written

pytestmark = pytest.mark.engine("real")


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
