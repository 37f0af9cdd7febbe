"""Requests on their way to the engine: long texts, distributions of drafts, clients that leave, turns of clients."""

import asyncio
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import pytest
from hypothesis import given

from backends.scripted import ScriptedBackend
from specpair.protocol import messages
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.draft_probs import drawn_from, normalised, propose
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.specpair.speculation.rows import positions, rows, samplings
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve, settings
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import Gated, leave_behind, until
from verifier_server.generation.server_drafting import FairPool
from verifier_server.generation.verify_requests import read_distributions
from verifier_server.service import Service


@pytest.mark.parametrize(("length", "beside"), [(100, False), (4096, False), (4097, True), (8000, True)])
def test_a_long_text_is_split_into_tokens_beside_the_event_loop(length: int, beside: bool) -> None:
    backend = ScriptedBackend(SCRIPT, context_length=9000)
    service, threads, encode = Service(settings(), backend), list[int](), backend.vocabulary.encode
    backend.vocabulary.encode = lambda text, **flags: threads.append(threading.get_ident()) or encode(text, **flags)  # type: ignore[method-assign,func-returns-value]
    service.loader.start()
    assert service.loader.wait(20)
    threads.clear()
    for body in ({"text": "x" * length}, {"parts": [{"text": "x" * length}]}):
        asyncio.run(service.tokenize(messages.TokenizeRequest.model_validate(body)))
    service.stop()
    assert threads and all((each != threading.get_ident()) == beside for each in threads)


def test_many_faults_of_a_body_are_not_listed(server: LiveServer) -> None:
    for body in ({"draft_tokens": ["x"] * 5000}, {"draft_tokens": [], **{f"key{at}": 1 for at in range(5000)}}):
        reply = server.http.post("/verify", json=body)
        assert reply.status_code in (400, 422) and len(reply.content) < 1000


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"5": 0.5}, "sum to 0.5, not to 1"),
        ({"5": 0.998}, "sum to 0.998"),
        ({"5": 1.0, "6": 0.5}, "sum to 1.5"),
        ({"5": 0.5, "6": math.nan}, "the weight of 6 is nan"),
        ({"5": 0.5, "6": math.inf}, "the weight of 6 is inf"),
        ({"5": 1.0, "6": 0.0}, "the weight of 6 is 0.0"),
        ({"5": 0.5, "6": -0.5}, "the weight of 6 is -0.5"),
        ({"5": 1.5, "6": 0.5}, "the weight of 5 is 1.5"),
        ({"5": 1e308, "6": 1e308}, "the weight of 5 is 1e\\+308"),
        ({"6": 1.0}, "the draft token 5 is not among the ids"),
        ({}, "the draft token 5 is not among"),
        ({"5": 0.5, "100": 0.5}, "'100' is no token id of the vocabulary of 100 ids"),
        ({"5": 0.5, "-1": 0.5}, "'-1' is no token id"),
        ({"5": 0.5, "06": 0.5}, "'06' is no token id"),
        ({"5": 0.5, "²": 0.5}, "'²' is no token id"),
        ({"5": 0.5, "": 0.5}, "'' is no token id"),
        ({"5": 0.5, "9" * 5000: 0.5}, "is no token id"),
    ],
)
def test_invalid_distribution_is_refused_with_its_position(sent: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidRequest, match="draft_probs.1: .*" + words) as caught:
        read_distributions([{"5": 1.0}, sent], [5, 5], 100)
    assert caught.value.details == {"param": "draft_probs.1"}


def test_rounded_weights_are_accepted() -> None:
    assert read_distributions([{"6": 0.3331, "5": 0.6662}], [5], 100) == [{5: 0.6662, 6: 0.3331}]


@pytest.mark.parametrize(("drafts", "most"), [(1, 8192), (64, 8192), (512, 16384)])
def test_number_of_ids_of_a_request_is_limited(drafts: int, most: int) -> None:
    """The limit is at least what a drafter sends for so many draft tokens."""
    each = most // drafts
    weights = {str(token): 1 / each for token in range(each)}
    assert len(read_distributions([weights] * drafts, [5] * drafts, 10_000)) == drafts
    one_more = {str(token): 1 / (each + 1) for token in range(each + 1)}
    with pytest.raises(InvalidRequest, match=f"{most + 1} ids for {drafts} draft_tokens, at most {most}") as caught:
        read_distributions([*[weights] * (drafts - 1), one_more], [5] * drafts, 10_000)
    assert caught.value.details == {"param": "draft_probs", "limit": most}


@pytest.mark.parametrize("sent", [[], [{"1": 1.0}], [{"1": 1.0}] * 3])
def test_each_draft_token_needs_a_distribution(sent: list[dict[str, float]]) -> None:
    with pytest.raises(InvalidRequest, match=f"there are {len(sent)} of them for 2 draft_tokens"):
        read_distributions(sent, [1, 1], 100)


@given(rows, samplings, positions)
def test_distribution_survives_the_wire_exactly(logits: Logits, sampling: Sampling, position: int) -> None:
    weights = propose(logits, sampling)
    draft = drawn_from(weights, sampling.seed, position)
    assert 1 <= len(weights) <= 32
    assert list(weights) == sorted(weights)
    on_the_wire = json.loads(json.dumps({str(token): weight for token, weight in weights.items()}))
    (arrived,) = read_distributions([on_the_wire], [draft], len(logits))
    assert normalised(arrived) == normalised(weights), "to the last bit"
    assert list(arrived) == list(weights)
    assert drawn_from(arrived, sampling.seed, position) == draft


PROMPT_IDS = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT_IDS, 10)


@pytest.mark.parametrize("path", ["/verify", "/verify/batch", "/prefill"])
def test_requests_of_disconnected_clients_are_dropped_and_can_be_sent_again(serve: Serve, path: str) -> None:
    backend = Gated()
    live = serve(backend)
    sessions = live.service.sessions
    prefill = {"session_id": "s", "prompt_ids": PROMPT_IDS}
    verify = {"session_id": "s", "position": 4, "draft_tokens": TEXT[1:3]}
    bodies: dict[str, dict[str, Any]] = {"/prefill": prefill, "/verify": verify, "/verify/batch": {"items": [verify]}}
    body = bodies[path]
    if path != "/prefill":
        live.post("/prefill", prefill)
    passes = backend.passes
    backend.close_gate()
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(live.post, "/prefill", {"session_id": "other", "prompt_ids": [256, 9]})
        assert backend.entered.wait(20)
        leave_behind(live, path, body, lambda: len(sessions) == 2 and sessions.get("s").lease.requests == 1)
        if path == "/prefill":
            until(lambda: len(sessions) == 1)  # no token was committed, so the session is removed
        else:
            until(lambda: sessions.get("s").lease.requests == 0)
        backend.gate.set()
        assert other.result(20)["tokens"] == plain(SCRIPT, [256, 9], 1)
    live.service.engine.check_integrity()
    assert backend.passes == passes + 1, "the other session's, and none for the disconnected client"
    reply = live.post(path, body)
    reply = reply["results"][0] if path == "/verify/batch" else reply
    assert reply["tokens"] == (TEXT[:1] if path == "/prefill" else TEXT[1:4])


def test_clients_take_turns_and_each_keeps_its_order() -> None:
    pool, started, unblock, done = FairPool(1), Event(), Event(), list[str]()

    def block() -> None:
        started.set()
        unblock.wait()

    pool.submit("a", block)
    started.wait()
    for each in ("a1", "a2", "a3", "b1", "b2", "c1"):
        pool.submit(each[0], partial(done.append, each))
    unblock.set()
    pool.shutdown()
    assert done == ["a1", "b1", "c1", "a2", "b2", "a3"]
