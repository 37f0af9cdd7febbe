"""Work is cancelled once its client hangs up, and only then."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.replies import hang_up
from specpair.http_service.replies.hang_up import HangUp, unless_hung_up


class Connection:
    """A connection with a body in two parts, which is closed when the test says so."""

    def __init__(self) -> None:
        self.closed, self.listened = asyncio.Event(), asyncio.Event()
        self.parts = [b"a", b"b"]
        self.given_up = False

    async def receive(self) -> dict[str, Any]:
        if self.parts:
            return {"type": "http.request", "body": self.parts.pop(0), "more_body": bool(self.parts)}
        self.listened.set()
        try:
            await self.closed.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return {"type": "http.disconnect"}

    async def body(self, request: Request) -> bytes:
        found = b""
        while (message := await request.receive())["more_body"]:
            found += message["body"]
        return found + bytes(message["body"])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_up, "PATIENCE", 0.001)


def test_an_endpoint_gets_the_whole_body_and_is_cancelled_when_its_client_hangs_up() -> None:
    async def scenario() -> None:
        connection, ended = Connection(), list[str]()

        async def endpoint(request: Request) -> Response:
            assert await connection.body(request) == b"ab"
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("given back")
            raise AssertionError("it waits for ever")

        task = asyncio.ensure_future(unless_hung_up(endpoint, Request({"type": "http"}, connection.receive)))
        await asyncio.wait_for(connection.listened.wait(), 20)
        assert not task.done()
        connection.closed.set()
        assert (await asyncio.wait_for(task, 20)).status_code == 499 and ended == ["given back"]
        assert not task.cancelling()

    asyncio.run(scenario())


def test_a_quick_reply_costs_no_listening_and_a_slow_one_ends_it() -> None:
    async def scenario() -> None:
        quick, slow = Connection(), Connection()
        quick.parts = slow.parts = []
        async with HangUp(quick.receive):
            pass
        async with HangUp(slow.receive) as waited:
            await asyncio.wait_for(slow.listened.wait(), 20)
        await asyncio.sleep(0)
        assert (quick.listened.is_set(), slow.given_up, waited.happened) == (False, True, False)

    asyncio.run(scenario())


@pytest.mark.parametrize("first", ["hang-up", "cancellation"])
def test_a_cancellation_from_elsewhere_stays_one(first: str) -> None:
    """As of a server that is stopped."""

    async def scenario() -> None:
        connection, cleaning, cleaned = Connection(), asyncio.Event(), asyncio.Event()
        connection.parts = []

        async def work() -> None:
            async with HangUp(connection.receive):
                try:
                    await asyncio.Event().wait()
                finally:
                    cleaning.set()
                    await cleaned.wait()

        task = asyncio.ensure_future(work())
        await asyncio.wait_for(connection.listened.wait(), 20)
        for each in (first, "cancellation"):
            connection.closed.set() if each == "hang-up" else task.cancel()
            await asyncio.wait_for(cleaning.wait(), 20)
        cleaned.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_an_error_of_the_work_is_raised_although_its_client_hung_up() -> None:
    async def scenario() -> None:
        connection = Connection()
        connection.parts = []
        hung_up = HangUp(connection.receive)

        async def work() -> None:
            async with hung_up:
                connection.closed.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    raise ValueError("broken") from None

        with pytest.raises(ValueError, match="broken"):
            await work()
        assert hung_up.happened
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()

    asyncio.run(scenario())
