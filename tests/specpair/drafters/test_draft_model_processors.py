"""A draft model applies the session's logit processors behind each continuation, wherever its window begins."""

from typing import Any

import numpy as np
import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.translation import TranslatingDrafter
from specpair.speculation.acceptance.draft_probs import drawn_from, propose
from specpair.speculation.sampling.sampling import Logits, Sampling, choose_reference
from tests.drafter_client.support import drafts_of
from tests.specpair.speculation import processed

SCRIPT = Script(support=24, sharpness=1.5)  # so few ids that they repeat
MODEL = ScriptedBackend(SCRIPT)
PROMPT = [256, *b"text text"]
BIAS = {3: -100.0, 7: 2.0}
PENALTIES = {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.3}
SAMPLINGS = pytest.mark.parametrize(
    "sampling",
    [Sampling(2, 0.0, 0, 1.0, **PENALTIES, logit_bias=BIAS), Sampling(3, 0.9, 40, 0.95, min_p=0.1, **PENALTIES)],  # type: ignore[arg-type]
    ids=["greedy", "sampled"],
)


def row_after(sampling: Sampling, output: list[int]) -> Logits:
    """The processed row behind the prompt and `output`, by definition."""
    row = MODEL.logits_after([*PROMPT, *output])
    return processed.process(row, sampling, PROMPT, output).astype(np.float32)


def drafter_of(backend: ScriptedBackend, sampling: Sampling, **more: Any) -> ModelDrafter:
    return ModelDrafter(backend, sampling, prompt_len=len(PROMPT), **more)


@SAMPLINGS
@pytest.mark.parametrize("has_top_logits", [False, True], ids=["rows", "top logits"])
def test_a_draft_equals_plain_decoding_with_the_processors(sampling: Sampling, has_top_logits: bool) -> None:
    drafter = drafter_of(ScriptedBackend(SCRIPT, has_top_logits=has_top_logits), sampling)
    expected = processed.plain(MODEL.logits_after, PROMPT, 20, sampling)
    assert [each.token for each in drafts_of(drafter, PROMPT, 12)] == expected[:12]
    assert [each.token for each in drafts_of(drafter, [*PROMPT, *expected[:9]], 11)] == expected[9:]
    unaware = ModelDrafter(ScriptedBackend(SCRIPT), sampling.unprocessed)
    assert [each.token for each in drafts_of(unaware, PROMPT, 12)] != expected[:12]


@SAMPLINGS
def test_each_continuation_has_its_own_processed_row(sampling: Sampling) -> None:
    drafter = drafter_of(ScriptedBackend(SCRIPT), sampling)
    output = [7, 3]
    for round_ in range(3):
        tails = [[], [7], [7, 7, round_], [3, 5]]
        found = drafter.expand([*PROMPT, *output], tails, True).proposals
        for tail, proposal in zip(tails, found, strict=True):
            row = row_after(sampling, output + tail)
            position = len(PROMPT) + len(output) + len(tail)
            assert proposal.token == choose_reference(row, sampling, position)
            mass = np.exp((row.astype(np.float64) - row.max()) / sampling.softmax_temperature)
            assert proposal.confidence == pytest.approx(mass[proposal.token] / mass.sum(), rel=1e-4)
            row[proposal.token] = -np.inf
            if np.isfinite(row.max()):
                assert proposal.runner_up == choose_reference(row, sampling, position)
        output += [found[0].token, 7]


@pytest.mark.parametrize("context", [8, 16])
def test_processors_see_the_text_before_the_window(context: int) -> None:
    sampling = Sampling(3, 0.9, **PENALTIES)  # type: ignore[arg-type]
    drafter = drafter_of(ScriptedBackend(SCRIPT, context_length=context), sampling)
    output: list[int] = []
    for _ in range(25):
        (found,) = drafter.expand([*PROMPT, *output], [[]], False).proposals
        assert found.token == choose_reference(row_after(sampling, output), sampling, len(PROMPT) + len(output))
        output.append(found.token)
    long = [int(each) for each in np.random.default_rng(1).integers(0, 256, context + 3)]  # a tail beyond the context
    (found,) = drafter.expand([*PROMPT, *output], [long], False).proposals
    row = row_after(sampling, output + long)
    assert found.token == choose_reference(row, sampling, len(PROMPT) + len(output) + len(long))


@SAMPLINGS
def test_drawn_draft_tokens_come_from_the_processed_distribution(sampling: Sampling) -> None:
    drafter = drafter_of(ScriptedBackend(SCRIPT, has_top_logits=True), sampling, draws=True)
    output: list[int] = []
    for _ in range(10):
        (found,) = drafter.expand([*PROMPT, *output], [[]], False).proposals
        weights = propose(row_after(sampling, output), sampling)
        assert found.probs is not None and dict(found.probs) == pytest.approx(dict(weights), rel=1e-4)
        assert found.token == drawn_from(found.probs, sampling.seed, len(PROMPT) + len(output))
        output.append(found.token)


def test_a_translated_draft_is_not_processed() -> None:
    """The ids of logit processors are the target's."""
    texts = []
    for sampling in (Sampling(5, 0.9), Sampling(5, 0.9, presence_penalty=2.0, logit_bias={101: 100.0})):
        backend = ScriptedBackend(Script(seed=4, support=128), slots=1)
        drafter = TranslatingDrafter(backend, MODEL.vocabulary, sampling)
        texts.append(drafter.expand(PROMPT, [[]], False).proposals)
    assert texts[0] == texts[1]
