"""Speculative decoding in lockstep: the text equals the target's alone with any drafter; no session is left behind."""

import json
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.generation import speculative_decoding
from drafter_client.generation.speculative_decoding import Preparation, SpeculativeRun
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.statistics import Stats
from drafter_client.options import Options
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.run.executors import Executor
from specpair.speculation.draft import TreeLimits
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.schedule import LOCKSTEP
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http import bodies
from tests.drafter_client.http.fake_transports import Faulty
from tests.drafter_client.support import (
    GREEDY,
    PROMPT,
    SAMPLINGS,
    Scenario,
    Verifier,
    begun,
    generate,
    model_info,
    options_of,
    plain,
    serving,
    target_alone,
    toy_drafter,
)
from tests.examples import examples


@SAMPLINGS
@pytest.mark.parametrize("length", [0, 1, 4, 9, None])
@pytest.mark.parametrize("agreement", [0.0, 0.6, 1.0])
def test_text_equals_target_alone_with_any_drafter(
    client: VerifierClient, agreement: float, sampling: Sampling, length: int | None
) -> None:
    drafter = ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), sampling)
    run = generate(client, drafter, length, **options_of(sampling, 24))
    assert run.tokens == target_alone(sampling, 24)
    assert run.stats.token_ids == run.tokens
    assert run.stats.finish_reason == "length"


@examples(20)
@given(
    length=st.none() | st.integers(0, 12), rights=st.lists(st.booleans(), max_size=80), confidence=st.floats(0.0, 1.0)
)
def test_text_does_not_depend_on_which_drafts_are_right(
    verifier: Verifier, length: int | None, rights: list[bool], confidence: float
) -> None:
    expected = target_alone(GREEDY, 24)
    right = iter(rights)

    def next_token(tokens: Sequence[int]) -> int:
        at = len(tokens) - len(PROMPT)
        truth = expected[at] if at < len(expected) else 0
        return truth if next(right, False) else (truth + 1) % 256

    with closing(VerifierClient(verifier.url)) as client:
        assert generate(client, Scenario(next_token, confidence), length, max_tokens=24).tokens == expected


def test_single_token_needs_no_round(client: VerifierClient) -> None:
    run = generate(client, Scenario(lambda tokens: 0), 4, max_tokens=1)
    assert run.tokens == target_alone(GREEDY, 1)
    assert (run.stats.rounds, run.stats.drafted) == (0, 0)
    assert run.stats.finish_reason == "length"


@pytest.mark.parametrize("agreement", [0.0, 1.0])
@pytest.mark.parametrize("length", [0, 4, None])
def test_end_token_ends_the_text(agreement: float, length: int | None) -> None:
    script = Script(seed=4, end_bias=6.0)
    expected = plain(ScriptedBackend(script), PROMPT, 300)
    assert expected[-1] == END and 8 < len(expected) < 300
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=4, end_bias=6.0, agreement=agreement)), GREEDY)
        run = generate(client, drafter, length, max_tokens=300)
    assert run.tokens == expected
    assert run.stats.finish_reason == "stop"


@pytest.mark.parametrize("options", [{}, {"max_tokens": 1000}], ids=["no limit", "a limit beyond it"])
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_full_context_ends_the_text(agreement: float, options: dict[str, Any]) -> None:
    small = ScriptedBackend(Script(seed=1), context_length=32)
    with serving(small) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), GREEDY)
        run = generate(client, drafter, 5, info=model_info(context_length=32), **options)
    assert run.tokens == target_alone(GREEDY, 32 - len(PROMPT))
    assert run.stats.finish_reason == "length"
    if agreement == 1.0:  # draft tokens beyond the context are neither judged nor counted
        assert run.stats.accepted == run.stats.drafted > 0


def test_nothing_is_drafted_for_the_position_of_the_last_token(verifier: Verifier) -> None:
    drafted: list[int] = []

    def watched(tokens: Sequence[int]) -> int:
        drafted.append(len(tokens) - len(PROMPT))
        return 0

    with closing(Faulty()) as transport:
        client = VerifierClient(verifier.url, transport=transport)
        run = generate(client, Scenario(watched), 5, info=model_info(max_drafts=2), max_tokens=5)
    drafts_sent = [json.loads(body) for body in transport.bodies if b"draft_tokens" in body]
    assert len(run.tokens) == 5
    # Limited by the verifier's maximum, then by the tokens left besides the target's own token of each round.
    assert [len(request["draft_tokens"]) for request in drafts_sent] == [2, 2, 1, 0]
    assert drafted == [1, 2, 2, 3, 3]


def test_session_is_released_at_the_end(client: VerifierClient, verifier: Verifier) -> None:
    generate(client, Scenario(lambda tokens: 0), 2, max_tokens=8)
    assert verifier.sessions == 0


def test_session_is_released_when_the_reader_stops_early(client: VerifierClient, verifier: Verifier) -> None:
    stats = Stats()
    run = begun(client, Scenario(lambda tokens: 0), stats, LOCKSTEP, max_tokens=50, draft_n=2)
    next(run)
    assert verifier.sessions == 1
    run.close()
    assert verifier.sessions == 0
    assert stats.finish_reason is None and stats.total_ms > 0 and stats.generated_tokens == 1


def test_session_is_released_when_the_drafter_fails(client: VerifierClient, verifier: Verifier) -> None:
    def broken(tokens: Sequence[int]) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        generate(client, Scenario(broken), 2, max_tokens=8)
    assert verifier.sessions == 0


def test_a_thread_that_has_not_begun_its_work_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come before it has run."""
    nothing: dict[str, Any] = dict.fromkeys(("client", "drafter", "info", "tell", "clock"))
    held, made, joins = threading.Event(), list[bool](), list[float | None]()

    def make() -> Executor:
        made.append(True)
        raise AssertionError("nothing is made any more")

    class Thread(threading.Thread):
        def run(self) -> None:
            assert held.wait(20)
            super().run()

        def join(self, timeout: float | None = None) -> None:
            joins.append(timeout)
            held.set()
            super().join(timeout)

    preparation = Preparation(SpeculativeRun(text=TextSession([1]), options=Options(), **nothing), make)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Thread)
        preparation.begin()
    assert preparation.close() == (0, 0)
    held.set()
    assert joins == [None] and not made and not any(isinstance(each, Thread) for each in threading.enumerate())


def test_what_the_verifier_takes_of_a_tree_is_told_to_the_controller(
    client: VerifierClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[TreeLimits]()

    class Told(SpeculationController):
        def __init__(self, *args: Any, tree_limits: TreeLimits, **options: Any) -> None:
            told.append(tree_limits)
            super().__init__(*args, tree_limits=tree_limits, **options)

    monkeypatch.setattr(speculative_decoding, "SpeculationController", Told)
    info = bodies.model_info(name="scripted-1", context_length=1024, max_tree_leaves=8, max_tree_nodes=16)
    generate(client, toy_drafter(), info=info, max_tokens=4)
    assert told == [TreeLimits(leaves=8, nodes=16)]
