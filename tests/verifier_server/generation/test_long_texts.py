"""What is long is not worked on in the event loop, and what is wrong with it is said in a few words."""

import asyncio
import threading

import pytest

from backends.scripted import ScriptedBackend
from specpair.protocol import messages
from tests.verifier_server.conftest import SCRIPT, LiveServer, settings
from verifier_server.service import Service


@pytest.mark.parametrize(("length", "beside"), [(100, False), (4096, False), (4097, True), (8000, True)])
def test_a_long_text_is_split_into_tokens_beside_the_event_loop(length: int, beside: bool) -> None:
    backend = ScriptedBackend(SCRIPT, context_length=9000)
    service, threads, encode = Service(settings(), backend), list[int](), backend.vocabulary.encode
    backend.vocabulary.encode = lambda text, **flags: threads.append(threading.get_ident()) or encode(text, **flags)  # type: ignore[method-assign,func-returns-value]
    service.loader.start()
    assert service.loader.wait(20)
    threads.clear()
    for given in ({"text": "x" * length}, {"parts": [{"text": "x" * length}]}):
        asyncio.run(service.tokenize(messages.TokenizeRequest.model_validate(given)))
    service.stop()
    assert threads and all((each != threading.get_ident()) == beside for each in threads)


def test_many_faults_of_a_body_are_not_listed(server: LiveServer) -> None:
    for body in ({"draft_tokens": ["x"] * 5000}, {"draft_tokens": [], **{f"key{at}": 1 for at in range(5000)}}):
        reply = server.http.post("/verify", json=body)
        assert reply.status_code in (400, 422) and len(reply.content) < 1000
