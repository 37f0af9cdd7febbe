"""Responses with OpenAI's own client and types: whole and streamed, kept and continued, at both ends."""

import json
from collections.abc import Hashable, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseTextConfig

from gateway.openai_api.messages.conversation import ChatMessage
from gateway.openai_api.responses import endpoints as store
from gateway.openai_api.responses.endpoints import KeptResponse, ResponseStore
from gateway.openai_api.responses.replies import EVENTS, OutputReasoning, ResponseObject
from tests.gateway.openai_api.parrot import LOOK, client_of, parrots
from tests.gateway.openai_api.tools.support import CUSTOM, TEXT, patch_call

OPTIONS: dict[str, Any] = {"model": "", "max_output_tokens": 12, "extra_body": {"seed": 3}}
ORDER = [*EVENTS]


def _of_chat(client: openai.OpenAI, messages: list[Any]) -> str:
    """The text of the same chat."""
    reply = client.chat.completions.create(model="", messages=messages, max_tokens=12, seed=3)
    return reply.choices[0].message.content or ""


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_the_answer_of_the_chat(client: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"instructions": "Be brief", "input": "Hello", **OPTIONS}
    if stream:
        events = [*client.responses.create(stream=True, **asked)]
        assert [event.sequence_number for event in events] == [*range(len(events))]
        names = [event.type for event in events]
        assert names[:4] == ORDER[:4] and names[4] == "response.output_text.delta"
        assert names[-4:] == [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
        assert all(type(event).construct(**event.to_dict()).to_dict() == event.to_dict() for event in events)
        for event in events:  # as its own type has it, checked
            type(event).model_validate(event.to_dict())
        texts = [event.delta for event in events if event.type == "response.output_text.delta"]
        response = events[-1].response
        assert "".join(texts) == response.output_text == events[-4].text == events[-3].part.text
        assert events[0].response.status == "in_progress" and events[0].response.output == []
    else:
        response = client.responses.create(**asked)
    type(response).model_validate(response.to_dict())
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}]
    assert response.output_text == _of_chat(client, messages)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    prompt = len("<system>Be brief</><user>Hello</><assistant>") + 1
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (prompt, 12, prompt + 12)
    assert response.output[0].status == "incomplete" and response.output[0].role == "assistant"


def test_a_conversation_goes_on_from_a_response_without_its_instructions(client: openai.OpenAI) -> None:
    first = client.responses.create(input="one", instructions="I", **OPTIONS)
    again: Any = {"input": "two", "previous_response_id": first.id, "instructions": "J", **OPTIONS}
    second = client.responses.create(**again)
    chat = [
        {"role": "system", "content": "J"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "two"},
    ]
    assert second.output_text == _of_chat(client, chat) and second.previous_response_id == first.id
    *_, last = client.responses.create(stream=True, **again)
    assert last.response.output_text == second.output_text
    third = client.responses.create(input="three", previous_response_id=last.response.id, **OPTIONS)
    chat = [*chat[1:], {"role": "assistant", "content": second.output_text}, {"role": "user", "content": "three"}]
    assert third.output_text == _of_chat(client, chat)


def test_a_response_is_kept_until_it_is_deleted(client: openai.OpenAI) -> None:
    response = client.responses.create(input="Hi", metadata={"a": "b"}, **OPTIONS)
    assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
    assert response.metadata == {"a": "b"}
    client.responses.delete(response.id)
    other = client.responses.create(input="Hi", store=False, **OPTIONS)
    for id in (response.id, other.id, "resp_none"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.responses.retrieve(id)
        assert caught.value.code == "response_not_found"
        with pytest.raises(openai.NotFoundError) as caught:
            client.responses.create(input="Hi", previous_response_id=id, **OPTIONS)
        assert caught.value.param == "previous_response_id"
        with pytest.raises(openai.NotFoundError):
            client.responses.delete(id)


def test_a_text_keeps_to_a_format(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    text: Any = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    response = client.responses.create(input="Hi", text=text, model="", max_output_tokens=40)
    assert json.loads(response.output_text)["a"] in (1, 2) and response.status == "completed"
    assert response.text is not None and isinstance(response.text, ResponseTextConfig)
    assert response.text.format is not None and response.text.format.type == "json_schema"


@pytest.mark.parametrize(
    ("given", "likeliest"),
    [
        ({"top_logprobs": 2}, 2),
        ({"top_logprobs": 2, "include": ["message.output_text.logprobs"]}, 2),
        ({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}, 0),
    ],
)
def test_logprobs(client: openai.OpenAI, given: Any, likeliest: int) -> None:
    response = client.responses.create(input="Hi", **OPTIONS, **given)
    message: Any = response.output[0]
    part = message.content[0]
    assert "".join(each.token for each in part.logprobs) == part.text
    assert {len(each.top_logprobs) for each in part.logprobs} == {likeliest}


def _tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"type": "function", "name": name, "parameters": schema | {"required": [*properties]}, "strict": False}


TOOLS: list[Any] = [_tool("look", town="string"), _tool("add", a="integer", b="integer")]


@pytest.fixture(scope="module", params=["target", "drafter"])
def parrot(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with parrots(request.param) as url, client_of(url) as parrot:
        yield parrot


def _response(parrot: openai.OpenAI, said: Any, *, stream: bool, **options: Any) -> Any:
    """The response to `said`, put together by the client if it is streamed."""
    given = {"model": "", "input": said, "tools": TOOLS, "extra_body": {"seed": 1}} | options
    if not stream:
        return parrot.responses.create(**given)
    with parrot.responses.stream(**given) as streamed:
        return streamed.get_final_response()


@pytest.mark.parametrize(
    ("said", "tool", "kind", "member", "name", "given"),
    [
        (LOOK, TOOLS[0], "function_call_arguments", "arguments", "look", '{"town": "Köln"}'),
        (patch_call(TEXT), CUSTOM, "custom_tool_call_input", "input", "patch", TEXT),
    ],
)
def test_a_call_grows_by_events_in_order(
    parrot: openai.OpenAI, said: str, tool: Any, kind: str, member: str, name: str, given: str
) -> None:
    events: list[Any] = [*parrot.responses.create(model="", input=said, tools=[tool], stream=True)]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    for event in events:
        type(event).model_validate(event.to_dict())
    names = [event.type.removeprefix("response.") for event in events]
    deltas = [event.delta for event in events if event.type.endswith(f"{kind}.delta")]
    assert names == [
        *("created", "in_progress", "output_item.added"),
        *[f"{kind}.delta"] * len(deltas),
        *(f"{kind}.done", "output_item.done", "completed"),
    ]
    assert len(deltas) > 5 and "".join(deltas) == getattr(events[-3], member) == given
    assert (events[2].item.name, getattr(events[2].item, member)) == (name, "")
    assert kind == "custom_tool_call_input" or events[-3].name == name


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_an_item_before_the_text(parrot: openai.OpenAI, stream: bool) -> None:
    response = _response(parrot, f"<think>\nWhy?\n</think>\n\nWell.\n{LOOK}", stream=stream)
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output[0].content[0].text.strip() == "Why?" and response.output_text.strip() == "Well."
    details = response.usage.output_tokens_details
    assert 0 < details.reasoning_tokens < response.usage.output_tokens


NAMESPACE: Any = {
    "type": "namespace",
    "name": "town",
    "description": "Of towns.",
    "tools": [_tool("look", town="string") | {"description": "Looks."}, _tool("leave")],
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_in_a_namespace_is_called_by_both_names(parrot: openai.OpenAI, stream: bool) -> None:
    tools = [*TOOLS, NAMESPACE]
    first = _response(parrot, LOOK.replace("look", "town.look"), stream=stream, tools=tools)
    (call,) = first.output
    assert (call.name, call.namespace, json.loads(call.arguments)) == ("look", "town", {"town": "Köln"})
    assert first.tools[2].to_dict()["tools"][0]["name"] == "look"
    (other,) = _response(parrot, LOOK, stream=stream, tools=tools).output
    assert (other.name, other.namespace) == ("look", None)
    said = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "12"},
        {"role": "user", "content": "Ok."},
    ]
    kept = _response(parrot, said, stream=stream, tools=tools, previous_response_id=first.id)
    items = [{"role": "user", "content": LOOK.replace("look", "town.look")}, call.to_dict(), *said]
    sent = _response(parrot, items, stream=stream, tools=tools)
    assert kept.output_text == sent.output_text == "Ok." and kept.usage.input_tokens == sent.usage.input_tokens


def test_the_model_sees_what_a_namespace_is_for(parrot: openai.OpenAI) -> None:
    flat = [_tool("town.look", town="string") | {"description": "Of towns.\n\nLooks."}]
    flat += [_tool("town.leave") | {"description": "Of towns."}]
    expected = _response(parrot, LOOK, stream=False, tools=flat).usage.input_tokens
    assert _response(parrot, LOOK, stream=False, tools=[NAMESPACE]).usage.input_tokens == expected


def _with(tool: Any) -> Any:
    """The namespace with a further tool."""
    return NAMESPACE | {"tools": [*NAMESPACE["tools"], tool]}


GRAMMAR = {"type": "grammar", "syntax": "lark"}
BROKEN = [{"definition": "start: other"}, {"syntax": "regex", "definition": "(a"}]
WRONG_SCHEMA: Any = {"type": "json_schema", "name": "x", "schema": {"not": {}}}


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "program"}]}, "input.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input.0.role"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_tokens": 4, "max_output_tokens": 16}, "max_tokens"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"temperature": -1}, "temperature"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "nope"}}}}, "text.format.schema"),
        ({"text": {"format": WRONG_SCHEMA}, "tools": TOOLS}, "text.format.schema"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "name": "no name"}]}, "tools.0.name"),
        ({"tools": [*TOOLS, TOOLS[0] | {"description": "Another"}]}, "tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [_with({"type": "web_search", "name": "x"})]}, "tools.0.tools.2.type"),
        ({"tools": [_with(_tool("look"))]}, "tools"),
        ({"tools": [_with(_tool("no name"))]}, "tools.0.tools.2.name"),
        ({"tools": [CUSTOM | {"format": GRAMMAR}]}, "tools.0.format"),
        ({"tools": [CUSTOM | {"format": GRAMMAR | {"syntax": "ebnf", "definition": "x"}}]}, "tools.0.format.syntax"),
        ({"tools": [CUSTOM | {"parameters": {"type": "object"}}]}, "tools.0"),
        *(
            ({"tools": [CUSTOM | {"format": GRAMMAR | each}], "tool_choice": "required"}, parameter)
            for each, parameter in zip(BROKEN, ("tools.0.format", "tools"), strict=True)
        ),
    ],
)
def test_what_is_wrong_is_named(parrot: openai.OpenAI, given: dict[str, Any], parameter: str) -> None:
    reply = httpx.post(f"{parrot.base_url}responses", json={"input": "Hi"} | given, trust_env=False)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, parameter) and parameter in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_cuts_a_call(parrot: openai.OpenAI, stream: bool) -> None:
    given: Any = {"model": "", "input": LOOK, "tools": TOOLS, "max_output_tokens": len(LOOK.encode()) - 20}
    response: Any = [*parrot.responses.create(stream=True, **given)][-1].response if stream else None
    response = response or parrot.responses.create(**given)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    (item,) = response.output
    assert item.status == "incomplete"
    cut = LOOK.encode()[:-20].decode()
    if stream:
        assert cut.endswith(f'"arguments": {item.arguments}') and item.name == "look"
    else:
        assert response.output_text == cut


def _kept(id: str, characters: int = 1) -> KeptResponse:
    construct: Any = ResponseObject.model_construct
    item = OutputReasoning(type="reasoning", id=f"rs_{id:0>32}00", status="completed", summary=[], content=[])
    kept = construct(id=f"resp_{id:0>32}", output=[item])
    return KeptResponse(kept, [ChatMessage(role="user", content="x" * characters)])


def _found(kept: ResponseStore, client: Hashable, id: str) -> bool:
    """Whether a response is kept, and its item."""
    item = kept.item(client, f"rs_{id:0>32}00")
    assert (item is not None) == (kept.find(client, f"resp_{id:0>32}") is not None)
    assert kept.item(client, f"rs_{id:0>32}01") is None
    return item is not None


def test_a_response_is_its_clients_alone() -> None:
    kept, id = ResponseStore(lambda: 0.0), f"resp_{1:0>32}"
    kept.keep("a", _kept("1"))
    assert _found(kept, "a", "1") and not _found(kept, "b", "1")
    assert not kept.delete("b", id) and kept.delete("a", id) and not kept.delete("a", id)


def test_it_is_forgotten_after_its_time() -> None:
    now = 0.0
    kept = ResponseStore(lambda: now)
    kept.keep("a", _kept("1"))
    for _ in range(2):
        now += store.SECONDS
        assert _found(kept, "a", "1"), "it was used"
    now += store.SECONDS + 1.0
    assert not _found(kept, "a", "1")


def test_the_least_recently_used_of_a_client_make_room() -> None:
    kept = ResponseStore(lambda: 0.0)
    kept.keep("b", _kept("b"))
    for at in range(store.MOST + 1):
        kept.keep("a", _kept(str(at)))
        assert _found(kept, "a", "0")
    assert not _found(kept, "a", "1") and _found(kept, "a", "2") and _found(kept, "b", "b")
    kept.keep("a", _kept("fff", store.MOST_CHARACTERS - 1000))
    assert _found(kept, "a", "fff") and not _found(kept, "a", "3")
    kept.keep("a", _kept("eee", store.MOST_CHARACTERS))
    assert not _found(kept, "a", "eee") and _found(kept, "a", "fff")


def test_all_clients_share_a_bound() -> None:
    kept = ResponseStore(lambda: 0.0)
    size = store.MOST_CHARACTERS - 1000
    clients = range(store.MOST_OF_ALL // size + 1)
    message = _kept("", size).messages
    for client in clients:
        kept.keep(client, KeptResponse(_kept(str(client)).response, message))
    assert not _found(kept, 0, "0") and _found(kept, clients[-1], str(clients[-1]))
