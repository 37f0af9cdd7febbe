"""The draft model of a pair reads what a text does not share with an earlier one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair, draft_sources
from specpair.engines.load_options import LoadOptions
from tests.drafter_client.support import Verifier, serving

LONG = [256, *(at % 200 for at in range(1200))]  # the drafter reads it in several pieces


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    # As slow as a model's target: else a text of 4 tokens may end before the drafter has read its prompt.
    with serving(ScriptedBackend(Script(seed=1, seconds_per_pass=0.02), slots=4, context_length=2048)) as running:
        yield running


@pytest.fixture
def drafting(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedBackend]:
    """The draft model, once it is loaded."""
    loaded: list[ScriptedBackend] = []

    def load(*_: Any) -> ScriptedBackend:
        loaded.append(ScriptedBackend(Script(seed=1), slots=4, context_length=2048))
        return loaded[-1]

    monkeypatch.setattr(draft_sources, "load", load)
    return loaded


def read(pair: Pair, draft: ScriptedBackend, prompt: list[int], **options: Any) -> int:
    """How many tokens the draft model reads for a text of 4 tokens."""
    before = draft.fed
    pair.generate(prompt, Options(max_tokens=4, mode=Mode.REMOTE, lookup=False, **options)).read()
    return draft.fed - before


@pytest.mark.parametrize("lockstep", [False, True])
def test_the_same_prompt_again_and_its_next_turn(
    verifier: Verifier, drafting: list[ScriptedBackend], lockstep: bool
) -> None:
    with Pair(verifier.url, DraftModel(Path("1"), "scripted", LoadOptions()), branches=2) as pair:
        [draft] = drafting
        assert read(pair, draft, LONG, lockstep=lockstep) >= len(LONG) - 1
        for prompt in (LONG, [*LONG, 7, 8, 9]):
            assert read(pair, draft, prompt, lockstep=lockstep) < 200
        assert read(pair, draft, LONG, lockstep=lockstep, cache_salt="x") >= len(LONG) - 1


def test_two_chats_by_turns_each_have_the_place_that_knows_them(
    verifier: Verifier, drafting: list[ScriptedBackend]
) -> None:
    other = [255, *LONG[1:]]
    with Pair(verifier.url, DraftModel(Path("1"), "scripted", LoadOptions()), branches=1, texts=2) as pair:
        [draft] = drafting
        for prompt in (LONG, other):
            assert read(pair, draft, prompt) >= len(LONG) - 1
        for prompt in (LONG, other, other, LONG):
            assert read(pair, draft, prompt) < 200
