"""A pair on a prompt that the draft model reads parts of: the text is the target's own, and the next turn is warm."""

from contextlib import closing
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.draft_sources import load_model
from models import DEFAULT_DRAFT
from specpair.drafters.warm_engine import WarmEngine
from specpair.engines.load_options import LoadOptions
from specpair.speculation.drafting.composed_context import SIZES
from specpair.speculation.text_options import TextSpec
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


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_a_draft_model_has_memory_for_a_prompt_of_any_length(kv_type: str) -> None:
    with closing(load_model("llama_cpp", LoadOptions(threads=1, kv_type=kv_type), DEFAULT_DRAFT, branches=2)) as model:
        taken = model.kv_bytes
        for length in (LONG, 131_072):
            prompt = [(at * at + at // 7) % 251 for at in range(length)]
            engine = WarmEngine(model)
            drafter = engine.drafter(TextSpec(), model.vocabulary.size, prompt, None)
            drafter.read_prompt(prompt, drafter.begun, bool, bool)
            assert len(drafter.expand(prompt, [[]], 0).proposals) == 1
            assert drafter.context_read.of == length and drafter.context_read.pieces > 0, "keys were moved"
            assert (model.kv_bytes, engine.held) == (taken, drafter.context_read.read)
            engine.empty()
