"""Speculative decoding in lockstep: the text equals the target's alone with any drafter; no session is left behind."""

import json
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.generation.speculative_decoding import Preparation, SpeculativeRun
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from drafter_client.options import Options
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.run.executors import Executor
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import Faulty
from tests.drafter_client.support import (
    PROMPT,
    SAMPLINGS,
    Scenario,
    Verifier,
    generate,
    model_info,
    options_of,
    target_alone,
)


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
