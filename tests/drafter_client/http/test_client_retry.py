"""Lost responses: the client retries, the verifier sends the same response again, and the text is the same."""

import json
from collections import Counter

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.errors import ConnectionLost
from drafter_client.generation.text_session import TextSession
from specpair.drafters.draft_model import ModelDrafter
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import LOST, Every, Faulty, over
from tests.drafter_client.support import PROMPT, Verifier, generate, options_of, plain


def test_a_verify_whose_response_was_lost_is_answered_from_the_record(verifier: Verifier) -> None:
    transport = Faulty(after=Every(2))
    with over(transport, verifier.url) as client:
        opened = client.prefill(TextSession(PROMPT), {"max_tokens": 20})
        position = len(PROMPT) + 1
        response = client.verify(opened.session_id, Draft.chain(position, [1, 2, 3]))
        again = client.verify(opened.session_id, Draft.chain(position, [1, 2, 3]))
        client.release(opened.session_id)
    first, second = transport.bodies[1:3]
    assert first == second and json.loads(first)["position"] == position
    assert response.judged == again.judged == 0  # the model ran for the response that was lost
    assert response.tokens == again.tokens == plain(ScriptedBackend(Script(seed=1)), PROMPT, 2)[1:]


def test_a_retried_prefill_finds_the_session_of_the_first_attempt(verifier: Verifier) -> None:
    def lose_first(number: int, path: str) -> None:
        if number == 0:
            raise LOST

    transport = Faulty(after=lose_first)
    with over(transport, verifier.url) as client:
        opened = client.prefill(TextSession(PROMPT), {"max_tokens": 20, "temperature": 1.0})
        assert transport.asked == ["/prefill", "/prefill"] and transport.bodies[0] == transport.bodies[1]
        assert verifier.sessions == 1
        seed = opened.sampling.seed  # drawn by the verifier, for the first of the two
        expected = plain(ScriptedBackend(Script(seed=1)), PROMPT, 1, Sampling(seed, 1.0))
        assert opened.tokens == expected
        client.release(opened.session_id)


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=3, temperature=0.8)], ids=["greedy", "warm"])
def test_the_text_does_not_depend_on_lost_messages(
    verifier: Verifier, sampling: Sampling, when: str, every: int
) -> None:
    transport = Faulty(**{when: Every(every)})
    with over(transport, verifier.url) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=1, agreement=0.6)), sampling)
        run = generate(client, drafter, 3, **options_of(sampling, 20))
    assert run.tokens == plain(ScriptedBackend(Script(seed=1)), PROMPT, 20, sampling)
    repeated = len(transport.asked) - len(set(zip(transport.asked, transport.bodies, strict=True)))
    assert repeated >= len(transport.asked) // every - 1 > 0
    assert verifier.sessions == 0


def test_a_draft_sent_twice_is_judged_and_counted_once(verifier: Verifier) -> None:
    transport = Faulty(after=Every(2))
    with over(transport, verifier.url) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=1)), Sampling())
        stats = generate(client, drafter, 3, max_tokens=21).stats
    assert stats.accepted <= stats.drafted
    assert stats.generated_tokens == 21
    assert Counter(transport.asked)["/verify"] > stats.rounds


def test_ctrl_c_in_a_prefill_releases_the_session(verifier: Verifier) -> None:
    def interrupt(number: int, path: str) -> None:
        if path == "/prefill":
            assert verifier.sessions == 1
            raise KeyboardInterrupt

    transport = Faulty(after=interrupt)
    with over(transport, verifier.url) as client, pytest.raises(KeyboardInterrupt):
        generate(client, None, 3, max_tokens=21)
    assert verifier.sessions == 0


def test_ctrl_c_in_a_verify_releases_the_session(verifier: Verifier) -> None:
    def interrupt(number: int, path: str) -> None:
        if path == "/verify":
            raise KeyboardInterrupt

    transport = Faulty(after=interrupt)
    drafter = ModelDrafter(ScriptedBackend(Script(seed=1)), Sampling())
    with over(transport, verifier.url) as client, pytest.raises(KeyboardInterrupt):
        generate(client, drafter, 3, max_tokens=21)
    assert verifier.sessions == 0


def test_a_verifier_that_dies_within_a_text_raises_connection_lost(verifier: Verifier) -> None:
    def dead(number: int, path: str) -> None:
        if number > 2:
            raise LOST

    transport = Faulty(before=dead)
    drafter = ModelDrafter(ScriptedBackend(Script(seed=1)), Sampling())
    with over(transport, verifier.url) as client, pytest.raises(ConnectionLost):
        generate(client, drafter, 3, max_tokens=21)
