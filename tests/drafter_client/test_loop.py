"""The draft loop: the text is the target's own, whatever drafts and however far, and no session is left behind."""

from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.client import VerifierClient
from drafter_client.drafter import Draft, ModelDrafter
from drafter_client.loop import speculate
from drafter_client.stats import Stats
from speculation.draft_length import Adaptive, DraftLength, Fixed, Round
from speculation.sampling import Sampling
from tests.drafter_client.support import PROMPT, Scenario, Ticks, Verifier, generate, options_of, plain, serving

GREEDY = Sampling()
WARM = Sampling(seed=20, temperature=0.9)
FILTERED = Sampling(seed=21, temperature=1.3, top_k=20, top_p=0.9)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])


@cache
def _target_alone(sampling: Sampling, count: int) -> list[int]:
    return plain(ScriptedBackend(Script(seed=1)), PROMPT, count, sampling)


def _length(name: str) -> DraftLength:
    return Adaptive() if name == "auto" else Fixed(int(name))


@SAMPLINGS
@pytest.mark.parametrize("length", ["0", "1", "4", "9", "auto"])
@pytest.mark.parametrize("agreement", [0.0, 0.6, 1.0])
def test_the_text_is_the_targets_own_whatever_drafts(
    client: VerifierClient, agreement: float, sampling: Sampling, length: str
) -> None:
    drafter = ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), sampling)
    run = generate(client, drafter, _length(length), **options_of(sampling, 24))
    assert run.tokens == _target_alone(sampling, 24)
    assert run.stats.token_ids == run.tokens
    assert run.stats.finish_reason == "length"


class _AsTold:
    """Drafts as many tokens in each round as its list says, each right or wrong as the other list says."""

    def __init__(self, lengths: list[int], rights: list[bool], text: list[int]) -> None:
        self._lengths, self._rights, self._text = iter(lengths), iter(rights), text
        self._now = 0

    def draft(self, tokens: Sequence[int], another: object) -> list[Draft]:
        self._now = next(self._lengths, 0)
        at = len(tokens) - len(PROMPT)
        expected = [*self._text[at : at + self._now], *[0] * self._now][: self._now]
        return [Draft(t if next(self._rights, False) else (t + 1) % 256, 0.5) for t in expected]

    def another(self, confidences: Sequence[float], room: int) -> bool:
        raise AssertionError("the drafter decides for itself")

    def to_send(self, confidences: Sequence[float]) -> int:
        return len(confidences)

    def learn(self, outcome: Round) -> None:
        assert outcome.agreed <= outcome.compared <= len(outcome.confidences)


@settings(max_examples=25)
@given(lengths=st.lists(st.integers(0, 12), max_size=12), rights=st.lists(st.booleans(), max_size=80))
def test_no_pattern_of_drafts_changes_the_text(verifier: Verifier, lengths: list[int], rights: list[bool]) -> None:
    expected = _target_alone(GREEDY, 24)
    told = _AsTold(lengths, rights, expected)
    with closing(VerifierClient(verifier.url)) as client:
        assert generate(client, told, told, max_tokens=24).tokens == expected


def test_one_token_needs_no_round(client: VerifierClient) -> None:
    run = generate(client, Scenario(lambda tokens: 0), Fixed(4), max_tokens=1)
    assert run.tokens == _target_alone(GREEDY, 1)
    assert (run.stats.rounds, run.stats.drafted) == (0, 0)
    assert run.stats.finish_reason == "length"


@pytest.mark.parametrize("agreement", [0.0, 1.0])
@pytest.mark.parametrize("length", ["0", "4", "auto"])
def test_an_end_token_ends_the_text(agreement: float, length: str) -> None:
    script = Script(seed=4, end_bias=6.0)
    expected = plain(ScriptedBackend(script), PROMPT, 300)
    assert expected[-1] == END and 8 < len(expected) < 300
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=4, end_bias=6.0, agreement=agreement)), GREEDY)
        run = generate(client, drafter, _length(length), max_tokens=300)
    assert run.tokens == expected
    assert run.stats.finish_reason == "stop"


@pytest.mark.parametrize("options", [{}, {"max_tokens": 1000}], ids=["no limit", "a limit beyond it"])
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_a_full_context_ends_the_text(agreement: float, options: dict[str, Any]) -> None:
    small = ScriptedBackend(Script(seed=1), context_length=32)
    with serving(small) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), GREEDY)
        run = generate(client, drafter, Fixed(5), **options)
    assert run.tokens == _target_alone(GREEDY, 32 - len(PROMPT))
    assert run.stats.finish_reason == "length"
    if agreement == 1.0:  # drafts for places that there are not are neither judged nor counted
        assert run.stats.accepted == run.stats.drafted > 0


def test_nothing_is_drafted_for_the_place_of_the_last_token(client: VerifierClient) -> None:
    rooms: list[int] = []

    class Watching(Fixed):
        def another(self, confidences: Sequence[float], room: int) -> bool:
            rooms.append(room)
            return super().another(confidences, room)

    run = generate(client, Scenario(lambda tokens: 0), Watching(0), max_tokens=4, max_drafts=2)
    assert len(run.tokens) == 4
    assert rooms == [2, 1, 0]  # by the verifier's limit, then by what is left beside the target's own token


def test_the_session_is_released_at_the_end(client: VerifierClient, verifier: Verifier) -> None:
    generate(client, Scenario(lambda tokens: 0), Fixed(2), max_tokens=8)
    assert verifier.sessions == 0


def test_the_session_is_released_when_the_reader_stops_early(client: VerifierClient, verifier: Verifier) -> None:
    stats = Stats()
    run = speculate(client, Scenario(lambda tokens: 0), Fixed(2), PROMPT, {"max_tokens": 50}, 8, stats, Ticks())
    next(run)
    assert verifier.sessions == 1
    run.close()
    assert verifier.sessions == 0
    assert stats.finish_reason is None and stats.total_ms > 0 and stats.generated_tokens == 1


def test_the_session_is_released_when_the_drafter_fails(client: VerifierClient, verifier: Verifier) -> None:
    def broken(tokens: Sequence[int]) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        generate(client, Scenario(broken), Fixed(2), max_tokens=8)
    assert verifier.sessions == 0
