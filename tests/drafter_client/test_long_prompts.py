"""A pair on a prompt that the draft model reads parts of: the text is the target's own, and the next turn is warm."""

from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair
from specpair.engines.load_options import LoadOptions
from specpair.speculation.drafting.composed_context import SIZES
from tests.drafter_client.support import plain, serving

LONG = 9000
DRAFT = DraftModel(Path("1"), "scripted", LoadOptions(context_length=2560))


def target(batch: int = 512, seconds: float = 0.0) -> ScriptedBackend:
    script = Script(seed=1, end_bias=-100.0, seconds_per_pass=seconds)
    return ScriptedBackend(script, slots=2, context_length=16_384, max_batch_tokens=batch)


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("branches", [2, 6])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_text_is_the_target_s_own(temperature: float, branches: int, lockstep: bool) -> None:
    options = Options(max_tokens=40, temperature=temperature, seed=5, mode=Mode.REMOTE, lockstep=lockstep, draft_n=4)
    prompt = [97 + at * at % 23 for at in range(LONG)]
    with serving(target(seconds=0.02)) as verifier, Pair(verifier.url, DRAFT, branches=branches) as pair:
        for new in (0, 40, 700):
            prompt = [*prompt, *(65 + at % 20 for at in range(new))]
            done = pair.generate(prompt, options).read()
            assert done.token_ids == plain(target(16_384), prompt, 40, options.sampling)
            context = done.stats.draft_context
            assert context is not None and context.read <= SIZES.most
            assert done.stats.metrics()["draft_context"] == context._asdict()
            if lockstep:  # else the target may have written the text before the draft model has read
                assert context.sink == SIZES.sink and context.of > LONG and done.stats.accepted > 10
            prompt = [*prompt, *done.token_ids]


def test_a_prompt_that_fits_is_read_as_a_whole() -> None:
    with serving(target()) as verifier, Pair(verifier.url, DRAFT) as pair:
        done = pair.generate([97] * 500, Options(max_tokens=20, mode=Mode.REMOTE)).read()
    context = done.stats.draft_context
    assert context is not None and context.read == context.of
