"""Calls of tools and thoughts in responses, with OpenAI's own client and types, whole and streamed, at both ends."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.gateway.openai_api.parrot import LOOK, client_of, parrots


def _tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"type": "function", "name": name, "parameters": schema | {"required": [*properties]}, "strict": False}


TOOLS: list[Any] = [_tool("look", town="string"), _tool("add", a="integer", b="integer")]


@pytest.fixture(scope="module", params=["target", "drafter"])
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with parrots(request.param) as url, client_of(url) as client:
        yield client


def _response(client: openai.OpenAI, said: Any, *, stream: bool, **options: Any) -> Any:
    """The response to `said`, put together by the client if it is streamed."""
    given = {"model": "", "input": said, "tools": TOOLS, "extra_body": {"seed": 1}} | options
    if not stream:
        return client.responses.create(**given)
    with client.responses.stream(**given) as streamed:
        return streamed.get_final_response()


def _called(response: Any) -> list[tuple[str, Any]]:
    calls = [item for item in response.output if item.type == "function_call"]
    assert all(call.call_id and call.id and call.status == "completed" for call in calls)
    return [(call.name, json.loads(call.arguments)) for call in calls]


def test_a_call_grows_by_events_in_order(client: openai.OpenAI) -> None:
    events: list[Any] = [*client.responses.create(model="", input=LOOK, tools=TOOLS, stream=True)]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    for event in events:
        type(event).model_validate(event.to_dict())
    names = [event.type.removeprefix("response.") for event in events]
    deltas = [event for event in events if event.type.endswith("arguments.delta")]
    assert names == [
        *("created", "in_progress", "output_item.added"),
        *["function_call_arguments.delta"] * len(deltas),
        *("function_call_arguments.done", "output_item.done", "completed"),
    ]
    assert len(deltas) > 5 and json.loads("".join(event.delta for event in deltas)) == {"town": "Köln"}
    assert events[2].item.name == "look" and events[2].item.arguments == "" and events[-3].name == "look"


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_an_item_before_the_text(client: openai.OpenAI, stream: bool) -> None:
    response = _response(client, f"<think>\nWhy?\n</think>\n\nWell.\n{LOOK}", stream=stream)
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
def test_a_tool_in_a_namespace_is_called_by_both_names(client: openai.OpenAI, stream: bool) -> None:
    tools = [*TOOLS, NAMESPACE]
    first = _response(client, LOOK.replace("look", "town.look"), stream=stream, tools=tools)
    (call,) = first.output
    assert (call.name, call.namespace, json.loads(call.arguments)) == ("look", "town", {"town": "Köln"})
    assert first.tools[2].to_dict()["tools"][0]["name"] == "look"
    (other,) = _response(client, LOOK, stream=stream, tools=tools).output
    assert (other.name, other.namespace) == ("look", None)
    said = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "12"},
        {"role": "user", "content": "Ok."},
    ]
    kept = _response(client, said, stream=stream, tools=tools, previous_response_id=first.id)
    items = [{"role": "user", "content": LOOK.replace("look", "town.look")}, call.to_dict(), *said]
    sent = _response(client, items, stream=stream, tools=tools)
    assert kept.output_text == sent.output_text == "Ok." and kept.usage.input_tokens == sent.usage.input_tokens


def test_the_model_sees_what_a_namespace_is_for(client: openai.OpenAI) -> None:
    flat = [_tool("town.look", town="string") | {"description": "Of towns.\n\nLooks."}]
    flat += [_tool("town.leave") | {"description": "Of towns."}]
    expected = _response(client, LOOK, stream=False, tools=flat).usage.input_tokens
    assert _response(client, LOOK, stream=False, tools=[NAMESPACE]).usage.input_tokens == expected


@pytest.mark.parametrize(
    ("tool", "parameter"),
    [
        ({"type": "custom", "name": "x"}, "tools.0.tools.2.type"),
        (_tool("look"), "tools"),
        (_tool("no name"), "tools.0.tools.2.name"),
    ],
)
def test_what_is_wrong_in_a_namespace_is_named(client: openai.OpenAI, tool: Any, parameter: str) -> None:
    namespace = NAMESPACE | {"tools": [*NAMESPACE["tools"], tool]}
    with pytest.raises(openai.BadRequestError) as caught:
        _response(client, "Hi", stream=False, tools=[namespace])
    assert caught.value.param == parameter


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "add"}])
def test_a_call_that_must_come_is_valid(client: openai.OpenAI, choice: Any) -> None:
    response = _response(client, "No!", stream=True, tool_choice=choice, parallel_tool_calls=False)
    ((name, arguments),) = _called(response)
    assert name == "add" or choice == "required"
    assert isinstance(arguments, dict) and response.to_dict()["tool_choice"] == choice
    assert not response.parallel_tool_calls


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_cuts_a_call(client: openai.OpenAI, stream: bool) -> None:
    given: Any = {"model": "", "input": LOOK, "tools": TOOLS, "max_output_tokens": len(LOOK.encode()) - 20}
    response: Any = [*client.responses.create(stream=True, **given)][-1].response if stream else None
    response = response or client.responses.create(**given)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    (item,) = response.output
    assert item.status == "incomplete"
    cut = LOOK.encode()[:-20].decode()
    if stream:
        assert cut.endswith(f'"arguments": {item.arguments}') and item.name == "look"
    else:
        assert response.output_text == cut


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools"),
        ({"tools": [{"type": "function", "name": "no name"}]}, "tools.0.name"),
        ({"tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}}, "text.format.schema"),
    ],
)
def test_what_is_wrong_is_named(client: openai.OpenAI, given: Any, parameter: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        _response(client, "x", stream=False, **given)
    assert refused.value.param == parameter
