"""Responses with OpenAI's own client and types: whole and streamed, kept and continued, at both ends."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseTextConfig

from gateway.openai_api.responses.replies import EVENTS

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


def test_items_of_earlier_answers_come_back_as_messages(client: openai.OpenAI) -> None:
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "A", "annotations": []}],
        },
        {"type": "message", "role": "user", "content": "c"},
    ]
    chat = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "A"}, {"role": "user", "content": "c"}]
    assert client.responses.create(input=items, **OPTIONS).output_text == _of_chat(client, chat)


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


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input.0.role"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_tokens": 4}, "max_tokens"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"temperature": -1}, "temperature"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "nope"}}}}, "text.format.schema"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
    ],
)
def test_what_is_wrong_is_named(url: str, given: dict[str, Any], parameter: str) -> None:
    reply = httpx.post(f"{url}/v1/responses", json={"input": "Hi"} | given, trust_env=False)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, parameter) and parameter in error["message"]
