"""The sizes of messages are those of the messages that ship."""

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from lab.simulator.virtual.network import SIZES
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import RejectionPolicy
from tests.drafter_client.support import serving

DIGITS = 3
PROMPT = [random.Random(0).randrange(100, 256) for _ in range(700)]
OPTIONS = {"temperature": 0.0, "max_tokens": 40}


@pytest.fixture(scope="module")
def client() -> Iterator[VerifierClient]:
    with serving() as verifier, closing(VerifierClient(verifier.url)) as client:
        yield client


def moved(client: VerifierClient) -> tuple[int, int]:
    """Bytes sent and received so far."""
    return client.connection.traffic.sent, client.connection.traffic.received


def check(
    client: VerifierClient,
    before: tuple[int, int],
    sent: float,
    received: float,
    rel: float | None = None,
    abs: float | None = None,
) -> None:
    """These bytes were sent and received since then."""
    now = moved(client)
    assert now[0] - before[0] == pytest.approx(sent, rel=rel, abs=abs)
    assert now[1] - before[1] == pytest.approx(received, rel=rel, abs=abs)


def test_a_text_in_rounds(client: VerifierClient) -> None:
    text, before = TextSession(PROMPT), moved(client)
    opened = client.prefill(text, OPTIONS | {"self_continue": False, "next_in_ms": 12.3})
    check(client, before, SIZES.prefill.of(len(PROMPT), DIGITS), SIZES.prefill_reply.of(len(PROMPT), DIGITS), rel=0.02)
    position = opened.total_tokens
    for count in (0, 5, 16):
        draft, before = Draft.chain(position, PROMPT[:count]), moved(client)
        reply = client.verify(text.session_id, draft, RejectionPolicy(None, 0.0123))
        position = reply.total_tokens
        short = 30 + 4 * len(reply.tokens)  # some ids of the reply have fewer digits
        check(
            client, before, SIZES.verify.of(count, DIGITS), SIZES.verify_reply.of(len(reply.tokens), DIGITS), abs=short
        )
    tree, before = Draft.chain(position, [*range(200, 206)]).with_parents([1, 2, 3, 4, 5, 2]), moved(client)
    reply = client.verify(text.session_id, tree, RejectionPolicy(None, 0.0123))
    assert moved(client)[0] - before[0] == pytest.approx(SIZES.verify_tree.of(6, DIGITS), abs=8)
    assert moved(client)[1] - before[1] == pytest.approx(SIZES.verify_tree_reply.of(len(reply.tokens), DIGITS), abs=40)
    client.release(text.session_id)
