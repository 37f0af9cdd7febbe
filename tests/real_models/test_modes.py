"""The text is the target's own in every mode, at both temperatures, token for token."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from drafter_client import Mode, Options, Pair
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
