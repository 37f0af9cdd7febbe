"""Messages with Anthropic's own client and types: whole and streamed, at both ends."""

import json
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

OPTIONS: dict[str, Any] = {"model": "scripted-2", "max_tokens": 12, "extra_body": {"seed": 3}}
HELLO: Any = [{"role": "user", "content": "Hello"}]
FORMAT: Any = {"type": "json_schema", "schema": {"type": "object"}}


def _of_chat(url: str, messages: list[Any], **options: Any) -> str:
    """The text of the same chat."""
    body = {"messages": messages, "max_tokens": 12, "seed": 3} | options
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False)
    text: str = reply.json()["choices"][0]["message"]["content"]
    return text


def _message(client: anthropic.Anthropic, stream: bool = False, **asked: Any) -> anthropic.types.Message:
    given = {"messages": HELLO} | OPTIONS | asked
    if not stream:
        return client.messages.create(**given)
    with client.messages.stream(**given) as streamed:
        message = streamed.get_final_message()
    return message


def _text(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_is_the_answer_of_the_chat(client: anthropic.Anthropic, url: str, stream: bool) -> None:
    message = _message(client, stream, system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}])
    chat = [{"role": "system", "content": "Be\n\nbrief"}, {"role": "user", "content": "Hello"}]
    assert _text(message) == _of_chat(url, chat)
    assert (message.stop_reason, message.stop_sequence, message.role) == ("max_tokens", None, "assistant")
    prompt = len("<system>Be\n\nbrief</><user>Hello</><assistant>") + 1
    usage = message.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == prompt and usage.output_tokens == 12
    type(message).model_validate(message.to_dict())


def test_the_events_are_of_their_types_and_in_order(client: anthropic.Anthropic, url: str) -> None:
    body = {"messages": HELLO, "max_tokens": 12, "stream": True}
    text = httpx.post(f"{url}/v1/messages?beta=true", json=body, trust_env=False).text
    parts = [part.split("\n") for part in text.split("\n\n") if part.startswith("event: ")]
    names = [name.removeprefix("event: ") for name, _ in parts]
    found = [json.loads(data.removeprefix("data: ")) for _, data in parts]
    assert names == [each["type"] for each in found]
    for each in found:
        TypeAdapter(RawMessageStreamEvent).validate_python(each)
    assert names[:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_is_named(client: anthropic.Anthropic, stream: bool) -> None:
    whole = _text(_message(client))
    message = _message(client, stream, stop_sequences=["never", whole[4:6]])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", whole[4:6])
    assert _text(message) == whole[: whole.index(whole[4:6])]


def test_a_full_context_is_told(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "x" * 470}]
    message = _message(client, messages=messages, max_tokens=400, extra_body={"ignore_eos": None, "min_tokens": 300})
    assert message.stop_reason == "model_context_window_exceeded"


def test_blocks_of_earlier_turns_come_back_as_messages(client: anthropic.Anthropic, url: str) -> None:
    cache = {"type": "ephemeral"}
    messages: Any = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": cache}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "A"},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "R"}]},
                {"type": "text", "text": "b"},
                {"type": "text", "text": "c"},
            ],
        },
    ]
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "A"},
        {"role": "tool", "content": "R", "tool_call_id": "t1"},
        {"role": "user", "content": "b\nc"},
    ]
    assert _text(_message(client, messages=messages)) == _of_chat(url, chat)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_has_begun_goes_on(client: anthropic.Anthropic, stream: bool) -> None:
    greedy: Any = {"extra_body": {"temperature": 0}}
    whole = _text(_message(client, **greedy))
    begun: Any = [*HELLO, {"role": "assistant", "content": [{"type": "text", "text": whole[:5]}]}]
    message = _message(client, stream, messages=begun, max_tokens=7, **greedy)
    assert whole == whole[:5] + _text(message)
    counted = [client.messages.count_tokens(model="", messages=each).input_tokens for each in (HELLO, begun)]
    assert counted[1] == counted[0] + 5 == message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


def test_models_are_listed_for_both_clients(client: anthropic.Anthropic, url: str) -> None:
    (model,) = client.models.list()
    assert model.id == model.display_name and model.type == "model" and model.created_at.year >= 2026
    assert client.models.retrieve(model.id).to_dict() == model.to_dict()
    type(model).model_validate(model.to_dict())
    plain = httpx.get(f"{url}/v1/models", trust_env=False).json()
    assert plain.keys() == {"object", "data"} and "type" not in plain["data"][0]


def test_the_usual_effort_is_the_same_as_none(client: anthropic.Anthropic) -> None:
    """As Claude Code asks."""
    assert _text(_message(client, output_config={"effort": "high"})) == _text(_message(client))


def test_tokens_are_counted_as_a_message_counts_them(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="scripted-2", messages=HELLO, system="S")
    usage = _message(client, system="S").usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    long: Any = [{"role": "user", "content": "x" * 600}]
    assert client.messages.count_tokens(model="", messages=long).input_tokens > 600


def test_a_text_keeps_to_a_schema(client: anthropic.Anthropic) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    message = _message(client, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=40)
    assert json.loads(_text(message))["a"] in (1, 2) and message.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        (
            {"messages": [*HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}]},
            "messages.1",
        ),
        (
            {"messages": [*HELLO, {"role": "assistant", "content": "{"}], "output_config": {"format": FORMAT}},
            "messages.1",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"system": 1}, "system"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "adaptive", "budget_tokens": 1024}}, "thinking"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "no"}}}},
            "output_config.format.schema",
        ),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"tools": [{"type": "bash_20250124", "name": "bash", "input_schema": {}}]}, "tools.0.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"stop_sequences": [""]}, "stop_sequences.0"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_is_wrong_is_named_in_anthropic_s_shape(
    client: anthropic.Anthropic, given: dict[str, Any], parameter: str
) -> None:
    asked = {"model": "", "messages": HELLO, "max_tokens": 4} | given
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.post("/v1/messages", body=asked, cast_to=object)
    body: Any = caught.value.body
    assert body["type"] == "error" and body["request_id"]
    assert (body["error"]["type"], body["error"]["param"]) == ("invalid_request_error", parameter)
    assert parameter in body["error"]["message"]


def test_another_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        _message(client, model="claude-opus-5")
    assert caught.value.type == "not_found_error"
