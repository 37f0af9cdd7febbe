"""A chat that is run for another API: silence, errors in the middle, and a target that changes before it begins."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.anthropic_api.endpoints import MessageWriter
from gateway.openai_api.answer import AnswerReason
from gateway.openai_api.generation import reply_to
from gateway.openai_api.messages.replies import TokenUsage
from gateway.openai_api.output import Delta
from gateway.openai_api.responses.requests import ResponseRequest
from gateway.openai_api.responses.writer import ResponseWriter
from gateway.openai_api.tools.notation import Content
from specpair.protocol.errors import EngineError, InvalidRequest, SpecPairError, TargetChanged

Part = str | None | SpecPairError


class Texts(SimpleNamespace):
    """A generation that tells these parts of one text, or raises them."""

    silence, stop_string, texts = b": silence\n\n", None, ()
    order = SimpleNamespace(model="m", vocabulary=None)

    def __init__(self, *parts: Part) -> None:
        super().__init__(parts=parts)

    async def deltas(self, running: object) -> AsyncIterator[tuple[int, Delta | None, AnswerReason | None]]:
        for part in self.parts:
            if isinstance(part, SpecPairError):
                raise part
            yield 0, None if part is None else Delta(part, events=[Content(part)]), None
        yield 0, Delta(), "stop"

    def usage(self) -> TokenUsage:
        return TokenUsage.model_validate(TokenUsage.model_json_schema()["examples"][0])

    def statistics(self) -> dict[str, Any]:
        return {}


def _kept(*_: object) -> None:
    pass


def _writer(api: str, texts: Any) -> Any:
    if api == "messages":
        return MessageWriter(texts, 10)
    return ResponseWriter(texts, ResponseRequest(input="x"), lambda: 0.0, _kept)


async def _never() -> Any:
    await asyncio.Event().wait()


def _sent(api: str, runs: Sequence[Texts], *, stream: bool) -> str:
    """The body of the reply. `runs`: the texts, each that is made after the other."""
    left = [*runs]
    sent: list[bytes] = []

    async def make() -> Any:
        return left.pop(0)

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def run() -> None:
        reply = await reply_to(stream, make, lambda texts: _writer(api, texts), {"messages": "input"})
        await reply({"type": "http"}, _never, send)

    asyncio.run(run())
    return b"".join(sent).decode()


def test_an_error_in_the_middle_is_the_last_event() -> None:
    error = EngineError("messages: it broke", param="messages")
    text = _sent("messages", [Texts("a", None, "b", error)], stream=True)
    assert Texts.silence.decode() in text
    name, data = text.rstrip("\n").split("\n")[-2:]
    told = json.loads(data.removeprefix("data: "))
    assert name == "event: error" and told["type"] == "error" and told["error"]["type"] == "api_error"
    assert (told["error"]["message"], told["error"]["param"]) == ("input: it broke", "input")
    text = _sent("responses", [Texts("a", error)], stream=True)
    name, data = text.rstrip("\n").split("\n")[-2:]
    response = json.loads(data.removeprefix("data: "))["response"]
    assert (name, response["status"], response["error"]["type"]) == ("event: response.failed", "failed", "engine_error")
    (item,) = response["output"]
    assert (item["content"][0]["text"], item["status"]) == ("a", "incomplete")


@pytest.mark.parametrize("api", ["messages", "responses"])
def test_an_error_of_a_whole_reply_is_raised_in_the_request_s_names(api: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^input\.1: no$") as caught:
        _sent(api, [Texts("a", InvalidRequest("messages.1: no", param="messages.1"))], stream=False)
    assert caught.value.details["param"] == "input.1"


@pytest.mark.parametrize("api", ["messages", "responses"])
def test_a_whole_reply_is_made_anew_if_the_target_changes(api: str) -> None:
    text = _sent(api, [Texts("a", TargetChanged("another")), Texts("b")], stream=False)
    assert '"text":"b"' in text and '"text":"a' not in text


def test_an_answer_without_a_text_has_an_empty_one_in_a_response_alone() -> None:
    assert json.loads(_sent("messages", [Texts()], stream=False))["content"] == []
    (item,) = json.loads(_sent("responses", [Texts()], stream=False))["output"]
    assert item["content"][0]["text"] == "" and item["status"] == "completed"
