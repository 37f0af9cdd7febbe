"""What agents and frameworks send, replayed: turns of a small task, in which each finds its calls and texts.

`recorded/agents/*.json` say of which program and version the requests are, and what it has to read. The replies are
read with the official clients' types, and of the events those that the program reads.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anthropic.types
import httpx
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.gateway.openai_api.parrot import Speaker, end_of, parrot_alone

Json = dict[str, Any]
FOLDER = Path(__file__).parent / "recorded" / "agents"
RECORDED = [
    (path.stem, request)
    for path in sorted(FOLDER.glob("*.json"))
    for request in json.loads(path.read_text(encoding="utf-8"))["requests"]
]
PROGRAMS = ["claude_code", "cline", "codex", "continue", "langchain", "litellm", "openai_agents", "opencode"]


class Read(NamedTuple):
    """What a program has read. `usage`: tokens of the prompt, those that were cached included, and generated ones."""

    text: str
    calls: list[list[Any]]  # names and arguments
    reason: str | None  # why the answer ended, or its status
    usage: tuple[int, int] | None


@pytest.fixture(scope="module", params=["target", "drafter"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with parrot_alone(Speaker()) as verifier, end_of(request.param, verifier) as url:
        yield url


def _events(reply: httpx.Response) -> list[Json]:
    """The data of the events. Comments and `[DONE]` are left out, and what says that the answer goes on."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    data = [line.removeprefix("data: ") for line in reply.text.split("\n") if line.startswith("data: ")]
    events = [json.loads(each) for each in data if each != "[DONE]"]
    return [each for each in events if each.get("type") != "ping"]


def _chat(reply: httpx.Response) -> Read:
    whole = ChatCompletion.model_validate(reply.json())
    message, usage = whole.choices[0].message, whole.usage
    called: list[Any] = message.tool_calls or []
    assert usage is not None and all(call.id for call in called)
    calls = [[call.function.name, json.loads(call.function.arguments)] for call in called]
    return Read(
        message.content or "", calls, whole.choices[0].finish_reason, (usage.prompt_tokens, usage.completion_tokens)
    )


def _chat_stream(reply: httpx.Response) -> Read:
    """A call begins with its id and name, as the AI SDK wants it, and its parts have its index."""
    text, reason, usage = "", None, None
    begun: dict[int, tuple[str, list[str]]] = {}
    for event in _events(reply):
        chunk = ChatCompletionChunk.model_validate(event)
        if chunk.usage is not None:
            usage = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
        for choice in chunk.choices:
            text, reason = text + (choice.delta.content or ""), choice.finish_reason or reason
            for call in choice.delta.tool_calls or []:
                assert call.function is not None
                if call.index not in begun:
                    assert call.id and call.type == "function" and call.function.name
                    begun[call.index] = call.function.name, []
                begun[call.index][1].append(call.function.arguments or "")
    return Read(text, [[name, json.loads("".join(parts))] for name, parts in begun.values()], reason, usage)


def _items(items: list[Any]) -> tuple[str, list[list[Any]]]:
    """The text and the calls of a response's output."""
    text, calls = "", []
    for item in items:
        if item.type == "message":
            text += "".join(part.text for part in item.content)
        elif item.type == "function_call":
            assert item.call_id and item.status == "completed"
            name = item.name if item.namespace is None else f"{item.namespace}.{item.name}"
            calls.append([name, json.loads(item.arguments)])
    return text, calls


def _response(reply: httpx.Response) -> Read:
    whole = Response.model_validate(reply.json())
    assert whole.usage is not None and whole.id
    usage = whole.usage.input_tokens, whole.usage.output_tokens
    return Read(*_items(whole.output), whole.status, usage)


def _response_stream(reply: httpx.Response) -> Read:
    """Codex reads the items that are done, other programs the deltas, or the last event alone: they say the same."""
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    events = [adapter.validate_python(each) for each in _events(reply)]
    assert [each.type for each in events[:2]] == ["response.created", "response.in_progress"]
    text, calls = _items([each.item for each in events if each.type == "response.output_item.done"])
    last = events[-1]
    assert last.type == "response.completed" and (text, calls) == _items(last.response.output)
    assert text == "".join(each.delta for each in events if each.type == "response.output_text.delta")
    arguments = [each.delta for each in events if each.type == "response.function_call_arguments.delta"]
    assert "".join(arguments) == "".join(item.arguments for item in last.response.output if hasattr(item, "arguments"))
    usage = last.response.usage
    assert usage.input_tokens_details.cached_tokens >= 0 and usage.output_tokens_details.reasoning_tokens == 0
    return Read(text, calls, last.response.status, (usage.input_tokens, usage.output_tokens))


def _message(reply: httpx.Response) -> Read:
    return _of_message(anthropic.types.Message.model_validate(reply.json()))


def _message_stream(reply: httpx.Response) -> Read:
    """The parts of the blocks, put into the message of the first event."""
    adapter: TypeAdapter[Any] = TypeAdapter(anthropic.types.RawMessageStreamEvent)
    first, *events, last = (adapter.validate_python(each) for each in _events(reply))
    assert first.type == "message_start" and last.type == "message_stop"
    blocks: list[Json] = []
    parts: list[str] = []
    whole = first.message.to_dict()
    for event in events:
        if event.type == "content_block_start":
            assert event.index == len(blocks)
            blocks.append(event.content_block.to_dict())
            parts = []
        elif event.type == "content_block_delta":
            assert event.index == len(blocks) - 1
            parts.append(event.delta.partial_json if event.delta.type == "input_json_delta" else event.delta.text)
        elif event.type == "content_block_stop":
            filled = "".join(parts)
            blocks[-1] |= {"input": json.loads(filled)} if blocks[-1]["type"] == "tool_use" else {"text": filled}
        else:
            whole |= {"stop_reason": event.delta.stop_reason, "usage": whole["usage"] | event.usage.to_dict()}
    return _of_message(anthropic.types.Message.model_validate(whole | {"content": blocks}))


def _of_message(message: anthropic.types.Message) -> Read:
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [[block.name, block.input] for block in message.content if block.type == "tool_use"]
    usage = message.usage
    return Read(
        text,
        calls,
        message.stop_reason,
        (usage.input_tokens + (usage.cache_read_input_tokens or 0), usage.output_tokens),
    )


READERS: dict[str, tuple[Callable[[httpx.Response], Read], Callable[[httpx.Response], Read]]] = {
    "/v1/chat/completions": (_chat, _chat_stream),
    "/v1/responses": (_response, _response_stream),
    "/v1/messages": (_message, _message_stream),
}
REASONS = {"/v1/chat/completions": ("tool_calls", "stop"), "/v1/messages": ("tool_use", "end_turn")}


@pytest.mark.parametrize(("program", "request_"), RECORDED, ids=[f"{name}: {each['what']}" for name, each in RECORDED])
def test_agents_get_what_they_read(url: str, program: str, request_: Json) -> None:
    body, path = request_["body"], request_["path"].removesuffix("?beta=true")
    headers = request_["headers"]
    reply = httpx.post(url + request_["path"], json=body, headers=headers, trust_env=False, timeout=60)
    assert reply.status_code == 200, reply.text
    streamed = bool(body.get("stream"))
    read = READERS[path][streamed](reply)
    calls = request_["read"].get("calls", [])
    assert (read.text, read.calls) == (request_["read"].get("text", ""), calls)
    assert read.reason == REASONS.get(path, ("completed", "completed"))[not calls]
    counted = not streamed or path != "/v1/chat/completions" or "stream_options" in body
    assert (read.usage is not None) == counted
    assert read.usage is None or min(read.usage) > 0


def test_eight_programs_are_recorded_in_turns() -> None:
    assert sorted({program for program, _ in RECORDED}) == PROGRAMS
    for program in PROGRAMS:
        read = [each["read"] for name, each in RECORDED if name == program]
        assert any("calls" in each for each in read) and (program == "cline" or any("text" in each for each in read))
