"""Requests on their way to the engine."""

import asyncio
from typing import cast

from backends.scripted import ScriptedBackend
from specpair.protocol.errors import ShuttingDown
from specpair.speculation.draft import Draft
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.engine.bench import session_over
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.interface import TokenEngine
from verifier_server.generation.engine_client import EngineClient


class Recorded:
    """An engine that answers each request with an error, and keeps how they came."""

    ended = None

    def __init__(self, client: EngineClient) -> None:
        self.came: list[int] = []
        self._client = client

    def submit(self, *requests: Request) -> None:
        self.came.append(len(requests))
        for request in requests:
            request.done(ShuttingDown("it is over"))
        self._client.deliver()


def ask(count: int, position: int, *, self_continue: bool = False) -> tuple[list[Answer | BaseException], list[int]]:
    """The results of requests that come in one turn of the loop, for sessions of 3 + 2 tokens; and the submits."""

    async def asked() -> tuple[list[Answer | BaseException], list[int]]:
        client = EngineClient()
        client.attach(asyncio.get_running_loop())
        engine = Recorded(client)
        sessions = [session_over(ScriptedBackend(), number, [256, 1, 2], TextSpec(), None) for number in range(count)]
        requests = []
        for session in sessions:
            session.resume([7, 8])
            session.self_continue = self_continue
            requests.append(Request(session, Draft.chain(position, [7])))
        answers = (client.answer(cast(TokenEngine, engine), each) for each in requests)
        return await asyncio.gather(*answers, return_exceptions=True), engine.came

    return asyncio.run(asked())


def test_requests_of_one_turn_of_the_loop_go_to_the_engine_together() -> None:
    results, came = ask(5, 5)
    assert came == [5]
    assert all(isinstance(each, ShuttingDown) for each in results)


def test_what_is_committed_is_answered_without_the_engine() -> None:
    results, came = ask(2, 3)
    assert [each.tokens for each in results if isinstance(each, Answer)] == [[7, 8], [7, 8]]
    assert came == []


def test_the_engine_hears_of_a_client_whose_text_it_continues() -> None:
    assert ask(2, 3, self_continue=True)[1] == [2]
