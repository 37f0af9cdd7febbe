"""The texts of a request: their places, silence, errors in the middle, a target that changes, and log probabilities."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.anthropic_api.endpoints import MessageWriter
from gateway.openai_api.answer import AnswerReason
from gateway.openai_api.generation import reply_to
from gateway.openai_api.messages.replies import CompletionLogprobs, TokenUsage
from gateway.openai_api.output import Delta, TokenPart
from gateway.openai_api.responses.requests import ResponseRequest
from gateway.openai_api.responses.writer import ResponseWriter
from gateway.openai_api.text_queue import QueuedText, TextQueue
from gateway.openai_api.tools.reader import Content
from gateway.openai_api.writers import completion_logprobs
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.protocol.errors import EngineError, InvalidRequest, Overloaded, SpecPairError, TargetChanged
from specpair.speculation.sampling.distribution import TokenLogprobs


@given(st.integers(1, 3), st.integers(0, 3), st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30))
def test_texts_begin_in_order_and_never_too_many_at_a_time(count: int, queue: int, steps: list[int | None]) -> None:
    """A step enters a text (None), or has one of those that are there leave."""
    places, there = TextQueue(lambda: count, lambda: queue, lambda: 0.0), list[QueuedText]()
    for step in steps:
        if step is None:
            if len(there) >= count + queue:
                with pytest.raises(Overloaded):
                    places.enter()
            else:
                there += places.enter()
        elif step < len(there):
            place = there.pop(step)
            place.leave()
            place.leave()
        begun = [place.began is not None for place in there]
        assert begun == sorted(begun, reverse=True), "one began before an earlier one"
        assert sum(begun) == min(count, len(there)) == places.taken
        assert places.waiting == len(there) - sum(begun)


def test_clients_take_turns() -> None:
    places = TextQueue(lambda: 1, lambda: 9, lambda: 0.0)
    (running,) = places.enter(1, "many")
    waiting = [*places.enter(3, "many"), *places.enter(2, "few"), *places.enter()]
    began = [running]
    while len(began) < 7:
        began[-1].leave()
        began += [place for place in waiting if place.began is not None and place not in began]
    assert [waiting.index(place) for place in began[1:]] == [0, 3, 5, 1, 4, 2]


def test_the_wait_is_that_of_the_texts_ahead() -> None:
    now = 0.0
    places = TextQueue(lambda: 2, lambda: 2, lambda: now)
    (first,) = places.enter()
    now = 6.0
    first.leave()
    for _ in range(4):
        places.enter()
    with pytest.raises(Overloaded) as refused:
        places.enter()
    assert refused.value.details["retry_after"] == 9  # three texts of 6 s, two at a time


Part = str | None | SpecPairError


class Texts(SimpleNamespace):
    """A generation that tells these parts of one text, or raises them."""

    silence, stop_string, texts = b": silence\n\n", None, ()
    spec = SimpleNamespace(model="m", vocabulary=None)

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


CUT = [b"\xc3", b"\xa4", b"\xe4\xbd", b" \xf0\x9f"]  # parts of characters
PIECES = [b"a", *CUT, b"a", b"", b"<|x|>", "ä".encode(), b"bytes:\\xc3", b"\xff\n"]


class _Vocabulary(Vocabulary):
    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        raise NotImplementedError


VOCABULARY = _Vocabulary(PIECES, [Kind.ORDINARY] * len(PIECES), None, frozenset())
IDS = st.sampled_from(range(len(PIECES)))


def _logprobs(drawn: int, *top: int) -> CompletionLogprobs:
    found = TokenLogprobs(drawn, -float(drawn), [(token, -float(token)) for token in top])
    return completion_logprobs(VOCABULARY, [TokenPart(drawn, 0, 1, found)])


@given(IDS, st.lists(IDS, max_size=len(PIECES) + 2, unique=True))
def test_no_token_is_lost_and_the_drawn_one_is_among_them(drawn: int, top: list[int]) -> None:
    logprobs = _logprobs(drawn, *top)
    (name,), (by_name,) = logprobs.tokens, logprobs.top_logprobs
    assert sorted(by_name.values()) == sorted({-float(token) for token in (drawn, *top)})
    assert by_name[name] == -float(drawn) == logprobs.token_logprobs[0]


@pytest.mark.parametrize(
    ("token", "name"),
    [(0, "a"), (1, r"bytes:\xc3"), (3, r"bytes:\xe4\xbd"), (4, r"bytes: \xf0\x9f"), (8, "ä"), (10, r"bytes:\xff\x0a")],
)
def test_parts_of_characters_are_named_by_their_bytes(token: int, name: str) -> None:
    assert _logprobs(token).tokens == [name] == list(_logprobs(token).top_logprobs[0])


def test_a_name_that_is_taken_becomes_the_id() -> None:
    assert list(_logprobs(5, 0, 1).top_logprobs[0]) == ["token_id:0", r"bytes:\xc3", "a"]
    assert _logprobs(6).tokens == ["token_id:6"]
