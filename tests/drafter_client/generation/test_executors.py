"""Speculative decoding over a real server: the text equals the target's alone, and no session or thread is left."""

import json
import signal
import threading
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.http.client import VerifierClient
from specpair.drafters.base import Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Entry, Logits
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import Faulty
from tests.drafter_client.support import (
    ALL,
    EACH_WAY,
    GREEDY,
    PROMPT,
    SAMPLING,
    WARM,
    WAYS,
    Scenario,
    Verifier,
    generate,
    model_info,
    options_of,
    plain,
    serving,
    target_alone,
    toy_drafter,
)
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "no_waiting")


@pytest.mark.parametrize(
    ("sampling", "mechanisms", "length", "agreement"),
    [
        *product(SAMPLING.values(), WAYS.values(), [3, None], [0.6]),
        *product(SAMPLING.values(), [ALL], [3, None], [0.0, 1.0]),
        *product([WARM], WAYS.values(), [0], [1.0]),  # drafts nothing
        *product(SAMPLING.values(), [LOCKSTEP], [0, 4, None], [0.6]),
    ],
)
def test_text_equals_target_alone_under_all_mechanisms(
    client: VerifierClient,
    verifier: Verifier,
    agreement: float,
    length: int | None,
    mechanisms: Mechanisms,
    sampling: Sampling,
) -> None:
    run = generate(client, toy_drafter(agreement, sampling), length, mechanisms=mechanisms, **options_of(sampling, 40))
    assert run.tokens == run.stats.token_ids == target_alone(sampling, 40)
    assert run.stats.finish_reason == "length"
    assert verifier.sessions == 0


@examples(20)
@given(
    mechanisms=st.just(LOCKSTEP)
    | st.builds(Mechanisms, st.just(True), st.integers(1, 4), st.booleans(), st.booleans()),
    length=st.none() | st.integers(0, 8),
    rights=st.lists(st.booleans(), min_size=1, max_size=60),
    confidence=st.floats(0.0, 1.0),
)
def test_text_does_not_depend_on_which_drafts_are_right(
    verifier: Verifier, mechanisms: Mechanisms, length: int | None, rights: list[bool], confidence: float
) -> None:
    expected = target_alone(GREEDY, 30)

    def next_token(tokens: Sequence[int]) -> int:
        at = len(tokens) - len(PROMPT)
        truth = expected[at] if at < len(expected) else 0
        return truth if rights[at % len(rights)] else (truth + 1) % 256

    with closing(VerifierClient(verifier.url)) as client:
        run = generate(client, Scenario(next_token, confidence), length, mechanisms=mechanisms, max_tokens=30)
    assert run.tokens == expected


@EACH_WAY
def test_drafter_and_verifier_read_the_prompt_concurrently(mechanisms: Mechanisms) -> None:
    reads = threading.Event()

    class WaitingBackend(ScriptedBackend):
        """Once `in_use` is set, finishes no pass before the drafter has begun to read."""

        in_use = False

        def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
            assert not self.in_use or reads.wait(20)
            return super()._forward(batch)

    class SignallingDrafter(ModelDrafter):
        def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
            reads.set()
            return super().expand(text, tails, runners_up)

    backend = WaitingBackend(Script(seed=1))
    with serving(backend) as verifier, closing(VerifierClient(verifier.url)) as client:
        backend.in_use = True
        drafter = SignallingDrafter(ScriptedBackend(Script(seed=1)), GREEDY)
        run = generate(client, drafter, None, mechanisms=mechanisms, max_tokens=20)
    assert run.tokens == target_alone(GREEDY, 20)


@EACH_WAY
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_end_token_ends_the_text(agreement: float, mechanisms: Mechanisms) -> None:
    script = Script(seed=4, end_bias=6.0)
    expected = plain(ScriptedBackend(script), PROMPT, 300)
    assert expected[-1] == END and 8 < len(expected) < 300
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=4, end_bias=6.0, agreement=agreement)), GREEDY)
        run = generate(client, drafter, None, mechanisms=mechanisms, max_tokens=300)
        assert verifier.sessions == 0
    assert run.tokens == expected and run.stats.finish_reason == "stop"


@EACH_WAY
@pytest.mark.parametrize("options", [{}, {"max_tokens": 1000}], ids=["no limit", "a limit beyond it"])
def test_full_context_ends_the_text(options: dict[str, Any], mechanisms: Mechanisms) -> None:
    small = ScriptedBackend(Script(seed=1), context_length=40)
    with serving(small) as verifier, closing(VerifierClient(verifier.url)) as client:
        info = model_info(context_length=40)
        run = generate(client, toy_drafter(1.0), 5, info=info, mechanisms=mechanisms, **options)
    assert run.tokens == target_alone(GREEDY, 40 - len(PROMPT))
    assert run.stats.finish_reason == "length"


@EACH_WAY
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_drafter_error_is_raised_to_the_reader(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms, error: type[BaseException]
) -> None:
    steps = iter(range(5))

    def broken(tokens: Sequence[int]) -> int:
        if next(steps) == 4:
            raise error
        return 0

    with pytest.raises(error):
        generate(client, Scenario(broken), None, mechanisms=mechanisms, max_tokens=900)
    assert verifier.sessions == 0


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the test sends a signal to the caller's thread")
@EACH_WAY
def test_ctrl_c_ends_the_text_and_releases_the_session(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms
) -> None:
    caller, steps = threading.get_ident(), iter(range(10**6))

    def interrupting(tokens: Sequence[int]) -> int:
        if next(steps) == 2:
            signal.pthread_kill(caller, signal.SIGINT)
        return 0

    with pytest.raises(KeyboardInterrupt):
        generate(client, Scenario(interrupting), None, mechanisms=mechanisms, max_tokens=900)
    assert verifier.sessions == 0


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
