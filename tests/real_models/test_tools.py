"""Conversations that call tools, by the official clients of three APIs: real models call the right one at both ends."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import anthropic
import httpx
import openai
import pytest

from tests.real_models.conversation import SYSTEM, TOOLS, TURNS

pytestmark = pytest.mark.engine("real")

FUNCTIONS = [each["function"] for each in TOOLS]
LIMIT = 100  # tokens of a reply
ONE = {"parallel_tool_calls": False}
Json = dict[str, Any]


class Reply(NamedTuple):
    """What a model said: names and arguments of calls, and a text."""

    calls: list[tuple[str, Json]]
    text: str


class Chat:
    """OpenAI's chats. `items`: the conversation so far."""

    def __init__(self, url: str, *, stream: bool) -> None:
        self._client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
        self._stream = stream
        self.items: list[Any] = [{"role": "system", "content": SYSTEM}]

    def say(self, question: str) -> None:
        self.items.append({"role": "user", "content": question})

    def ask(self, choice: str) -> Reply:
        given: Any = {"model": "", "messages": self.items, "tools": TOOLS, "tool_choice": choice, **ONE}
        given |= {"max_tokens": LIMIT, "temperature": 0}
        if self._stream:
            with self._client.chat.completions.stream(**given) as stream:
                message: Any = stream.get_final_completion().choices[0].message
        else:
            message = self._client.chat.completions.create(**given).choices[0].message
        self.items.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        self._ids = [each.id for each in message.tool_calls or ()]
        functions = [each.function for each in message.tool_calls or ()]
        return Reply([(each.name, json.loads(each.arguments)) for each in functions], message.content or "")

    def answer(self, result: str) -> None:
        self.items += [{"role": "tool", "tool_call_id": each, "content": result} for each in self._ids]


class Responses:
    """OpenAI's Responses, each of which names the one before."""

    def __init__(self, url: str, *, stream: bool) -> None:
        self._client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
        self._stream = stream
        self._items: list[Any] = []
        self._previous: str | None = None

    def say(self, question: str) -> None:
        self._items = [{"role": "user", "content": question}]

    def ask(self, choice: str) -> Reply:
        given: Any = {
            "model": "",
            "instructions": SYSTEM,
            "input": self._items,
            "tools": [{"type": "function", **each} for each in FUNCTIONS],
            "tool_choice": choice,
            **ONE,
            "max_output_tokens": LIMIT,
            "temperature": 0,
        }
        if self._previous is not None:
            given["previous_response_id"] = self._previous
        if self._stream:
            with self._client.responses.stream(**given) as stream:
                response: Any = stream.get_final_response()
        else:
            response = self._client.responses.create(**given)
        self._previous = response.id
        calls = [each for each in response.output if each.type == "function_call"]
        self._ids = [each.call_id for each in calls]
        return Reply([(each.name, json.loads(each.arguments)) for each in calls], response.output_text)

    def answer(self, result: str) -> None:
        self._items = [{"type": "function_call_output", "call_id": each, "output": result} for each in self._ids]


class Messages:
    """Anthropic's Messages."""

    def __init__(self, url: str, *, stream: bool) -> None:
        self._client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=600)
        self._stream = stream
        self._items: list[Any] = []

    def say(self, question: str) -> None:
        self._items.append({"role": "user", "content": question})

    def ask(self, choice: str) -> Reply:
        tools = [
            {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
            for each in FUNCTIONS
        ]
        how = {"type": "none"} if choice == "none" else {"type": "any", "disable_parallel_tool_use": True}
        given: Any = {"model": "", "system": SYSTEM, "messages": self._items, "tools": tools, "tool_choice": how}
        given |= {"max_tokens": LIMIT, "extra_body": {"temperature": 0}}  # the client has it no longer
        if self._stream:
            with self._client.messages.stream(**given) as stream:
                message: Any = stream.get_final_message()
        else:
            message = self._client.messages.create(**given)
        self._items.append({"role": "assistant", "content": message.content})
        calls = [each for each in message.content if each.type == "tool_use"]
        self._ids = [each.id for each in calls]
        text = "".join(each.text for each in message.content if each.type == "text")
        return Reply([(each.name, each.input) for each in calls], text)

    def answer(self, result: str) -> None:
        parts = [{"type": "tool_result", "tool_use_id": each, "content": result} for each in self._ids]
        self._items.append({"role": "user", "content": parts})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("end", [0, 1], ids=["verifier", "drafter"])
@pytest.mark.parametrize("api", [Chat, Responses, Messages])
def test_four_turns_call_the_right_tools(
    ends: tuple[httpx.Client, httpx.Client], api: Callable[..., Any], end: int, stream: bool
) -> None:
    conversation = api(str(ends[end].base_url).rstrip("/"), stream=stream)
    for turn in TURNS[:4]:
        conversation.say(turn.question)
        called = conversation.ask("required")
        assert turn.fault(called.calls) is None, called
        conversation.answer(turn.result)
        told = conversation.ask("none")
        assert told.calls == [] and told.text, told
