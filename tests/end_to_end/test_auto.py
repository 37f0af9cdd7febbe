"""The same text in every mode, with a grammar, and by drafters that share a slot."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle
from typing import Any

import pytest

from drafter_client import DraftModel, LoadOptions, Mode, Options, Pair
from drafter_client.http.client import VerifierClient
from drafter_client.modes.auto import ModeSelection
from models import DEFAULT_DRAFT
from specpair.drafters.draft_model import ModelDrafter
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.conftest import CountFlips
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON_OF_AUTO, Reference, ends_where_it_should, model
from verifier_server.settings import Settings


@pytest.fixture(scope="module", params=[True, False], ids=["deterministic", "one thread"])
def verifier_with_draft(request: pytest.FixtureRequest) -> Iterator[Verifier]:
    settings = Settings(
        slots=4, context=CONTEXT, threads=1, deterministic=request.param, draft_model=DEFAULT_DRAFT, draft_threads=1
    )
    with running(settings) as started:
        yield started


def test_auto_mode_writes_the_text_of_every_other_mode(
    verifier_with_draft: Verifier,
    reference: Reference,
    count_flips: CountFlips,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not deterministic, it may differ at near-ties: how wide a pass is depends on when a draft arrives."""
    following = cycle([Mode.REMOTE, Mode.FUSED, Mode.TARGET])

    def after_some_tokens(_: ModeSelection, _left: int, mode: Mode | None, written: int, *_more: object) -> Mode:
        return mode if mode is not None and written < 12 else next(following)

    monkeypatch.setattr(ModeSelection, "next", after_some_tokens)
    draft = DraftModel(engine=LoadOptions(threads=1))
    sampling = Sampling(temperature=0.8, seed=3)
    texts, turns, flips = {}, [], list[float]()
    with Pair(verifier_with_draft.url, draft) as pair:
        for mode in (Mode.AUTO, *pair.modes):
            options = Options(max_tokens=220, temperature=sampling.temperature, seed=sampling.seed, mode=mode)
            stats = pair.generate(PROMPTS[0], options).read().stats
            texts[mode] = stats.token_ids
            turns += stats.turns
    assert len(texts) == 4 and len(texts[Mode.TARGET]) == 220
    assert {turn.mode for turn in turns} == {Mode.REMOTE, Mode.FUSED, Mode.TARGET}
    for text in texts.values():
        if text != texts[Mode.TARGET]:
            flips += reference.flips(reference.encode(PROMPTS[0]), text, sampling)
    count_flips(sum(map(len, texts.values())), flips, below=EPSILON_OF_AUTO)
    if verifier_with_draft.service.settings.deterministic:
        assert all(text == texts[Mode.TARGET] for text in texts.values())
    assert verifier_with_draft.sessions == 0


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "function_name": {"type": "string", "pattern": "^[a-z_]{1,12}$"},
        "arguments": {"type": "array", "items": {"$ref": "#/$defs/argument"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["function_name", "arguments"],
    "additionalProperties": False,
    "$defs": {
        "argument": {
            "type": "object",
            "properties": {
                "name": {"enum": ["self", "größe", "x"]},
                "default": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
            },
            "required": ["name", "default"],
            "additionalProperties": False,
        }
    },
}

GRAMMARS: list[dict[str, Any]] = [{"json_schema": SCHEMA}, {"regex": r"def [a-z]{1,8}\(self\):\n    return [0-9]{1,3}"}]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_same_seed_gives_the_same_json_in_every_mode(temperature: float) -> None:
    settings = Settings(slots=2, context=CONTEXT, threads=1, draft_model=DEFAULT_DRAFT, draft_threads=1)
    with running(settings) as verifier, Pair(verifier.url, DraftModel()) as pair:
        for seed, grammar in enumerate(GRAMMARS):
            done = {
                mode: pair.generate(
                    "class Stack:\n", Options(max_tokens=120, temperature=temperature, seed=seed, mode=mode, **grammar)
                ).read()
                for mode in (Mode.TARGET, Mode.REMOTE, Mode.FUSED)
            }
            assert len({each.text for each in done.values()}) == 1
            text = done[Mode.TARGET].text
            assert done[Mode.TARGET].stats.finish_reason == "stop"
            assert done[Mode.TARGET].stats.sources[TokenSource.FORCED] > 2
            if "regex" in grammar:
                assert re.fullmatch(grammar["regex"], text)
            else:
                assert json.loads(text)["arguments"][0].keys() == {"name", "default"}


COUNT = 48


def test_two_drafters_sharing_one_slot_get_the_target_s_text(reference: Reference, count_flips: CountFlips) -> None:
    sampling = Sampling(seed=5, temperature=0.8)

    def write(url: str, texts: tuple[str, ...]) -> list[tuple[list[int], list[int]]]:
        written = []
        with closing(VerifierClient(url)) as client, model(DEFAULT_DRAFT) as backend:
            for text in texts:
                prompt = backend.vocabulary.encode(text)
                drafter = ModelDrafter(backend, sampling)
                run = generate(client, drafter, 4, prompt, info=client.model(), **options_of(sampling, COUNT))
                written.append((prompt, run.tokens))
        return written

    with running(Settings(slots=1, context=CONTEXT, threads=1)) as verifier, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(write, verifier.url, PROMPTS[part : part + 3]) for part in (0, 3)]
        written = [pair for each in both for pair in each.result()]
        assert verifier.sessions == 0
    flips = [margin for prompt, tokens in written for margin in reference.flips(prompt, tokens, sampling)]
    count_flips(sum(len(tokens) for _, tokens in written), flips)
    assert len(written) == 6 and all(ends_where_it_should(reference, tokens, COUNT) for _, tokens in written)
