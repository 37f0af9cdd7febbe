"""The shipped pair with logit processors: in every mode, the text is the target's alone for the same seed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from drafter_client import Mode, Options, Pair
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.engines.backend import Backend, Entry
from specpair.speculation.sampling.sampling import Logits
from tests.drafter_client.support import Verifier, running
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, model
from tests.specpair.speculation import processed
from verifier_server.settings import Settings

pytestmark = pytest.mark.slow

COUNT = 64
SETTINGS: dict[str, dict[str, Any]] = {
    "penalties": {"temperature": 0.8, "presence_penalty": 0.6, "frequency_penalty": 0.3, "repetition_penalty": 1.1},
    "greedy": {"repetition_penalty": 1.3, "logit_bias": {13: 2.0, 222: -100.0}},
    "min_p": {"temperature": 1.2, "min_p": 0.1, "logit_bias": {13: 1.0}},
}


@pytest.fixture(scope="module")
def target() -> Iterator[Backend]:
    with model(DEFAULT_TARGET, deterministic=True) as backend:
        yield backend


@pytest.fixture(scope="module")
def exact_verifier() -> Iterator[Verifier]:
    """Bit-identical logits whatever the batch, so that there are no near-ties."""
    drafting: dict[str, Any] = {"draft_model": DEFAULT_DRAFT, "draft_threads": 1, "draft_slots": 1}
    with running(Settings(slots=2, context=CONTEXT, threads=1, deterministic=True, **drafting)) as started:
        yield started


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_text_is_the_target_s_in_every_mode(
    exact_verifier: Verifier, target: Backend, settings: dict[str, Any]
) -> None:
    def logits_after(tokens: Sequence[int]) -> Logits:
        held = target.length(0)  # each row continues the text of the row before
        return target.extend([Entry(0, held, tokens[held:], len(tokens) - held - 1)])[0][0].copy()

    with Pair(exact_verifier.url) as pair:
        for number, text in enumerate(PROMPTS[:2]):
            prompt, options = pair.encode(text), Options(max_tokens=COUNT, seed=number, **settings)
            target.release(0)
            expected = processed.plain(logits_after, prompt, COUNT, options.sampling, target.vocabulary.ends)
            ways: dict[str, dict[str, Any]] = {
                "remote": {},
                "remote, in lockstep": {"draft_n": 3, "lockstep": True},
                "fused": {"mode": Mode.FUSED},
                "target": {"mode": Mode.TARGET},
            }
            texts = {name: pair.generate(prompt, replace(options, **how)).read() for name, how in ways.items()}
            assert {name: done.token_ids for name, done in texts.items()} == dict.fromkeys(texts, expected)
            assert texts["remote, in lockstep"].stats.accepted > 0, "overlapped, it depends on timing"
            plain = pair.generate(prompt, Options(max_tokens=COUNT, seed=number, temperature=options.temperature))
            assert plain.read().token_ids != expected
