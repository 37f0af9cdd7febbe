"""What programs, agents and frameworks send, replayed: each finds in the reply what it reads there.

`recorded/*.json` say of which program and version the requests are. `read`: what an agent has to read, in turns of a
small task. Of other programs, the text is the target's; `refused`: the parameter that is refused, because it would
change the text. The replies are read with the official clients' types, and of the events those that programs read.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anthropic.types
import httpx
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.gateway.openai_api.parrot import Speaker, end_of, parrot_alone

Json = dict[str, Any]


def recorded(name: str) -> list[Any]:
    """Parameters of a test: the requests in a file, each with its program."""
    content = json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text(encoding="utf-8"))
    requests = [(program, request) for program, told in content.items() for request in told["requests"]]
    return [pytest.param(*each, id=f"{each[0]}: {each[1]['what']}") for each in requests]


SEED = {"seed": 7}  # for requests without one, so that the text is determined
_OF_TARGET: dict[str, Json] = {}  # replies of the verifier's own endpoint, by request


class Read(NamedTuple):
    """What a program has read. `usage`: tokens of the prompt, those that were cached included, and generated ones."""

    text: str
    calls: list[list[Any]]  # names and arguments
    reason: str | None  # why the answer ended, or its status
    usage: tuple[int, int] | None


@pytest.fixture(scope="module", params=["target", "drafter"])
def agents(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a service whose model answers what the requests say."""
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


@pytest.mark.parametrize(("program", "request_"), recorded("agents"))
def test_agents_get_what_they_read(agents: str, program: str, request_: Json) -> None:
    body, path = request_["body"], request_["path"].removesuffix("?beta=true")
    headers = request_["headers"]
    reply = httpx.post(agents + request_["path"], json=body, headers=headers, trust_env=False, timeout=60)
    assert reply.status_code == 200, reply.text
    streamed = bool(body.get("stream"))
    read = READERS[path][streamed](reply)
    calls = request_["read"].get("calls", [])
    assert (read.text, read.calls) == (request_["read"].get("text", ""), calls)
    assert read.reason == REASONS.get(path, ("completed", "completed"))[not calls]
    counted = not streamed or path != "/v1/chat/completions" or "stream_options" in body
    assert (read.usage is not None) == counted
    assert read.usage is None or min(read.usage) > 0


def _of_target(verifier_url: str, body: Json) -> Json:
    """The reply of the verifier's own endpoint for the same text, which is the same behind each service."""
    prompt = body.get("prompt")
    if prompt is None:
        said = "".join(f"<{message['role']}>{message['content']}</>" for message in body["messages"])
        tools = f"<tools>{json.dumps(body['tools'])}</>" if body.get("tools") else ""
        prompt = f"{tools}{said}<assistant>"
    names = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed")
    request = {"prompt": prompt, "temperature": 1.0} | {name: body[name] for name in names if name in body}
    if (content := json.dumps(request)) not in _OF_TARGET:
        _OF_TARGET[content] = httpx.post(
            f"{verifier_url}/generate", content=content, trust_env=False, timeout=60
        ).json()
    return _OF_TARGET[content]


def _text(event: Json) -> tuple[str, str | None]:
    """What a completion, a chat or a chunk of either says, and why it ended."""
    text, reason = "", None
    for choice in event["choices"]:
        said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
        assert not said.get("tool_calls")
        text, reason = text + (said.get("content") or ""), choice["finish_reason"] or reason
    return text, reason


@pytest.mark.parametrize(("program", "request_"), recorded("programs"))
def test_programs_get_what_they_read(url: str, verifier_url: str, program: str, request_: Json) -> None:
    body = SEED | request_["body"] if "body" in request_ else None
    headers = request_["headers"]
    reply = httpx.request(
        request_["method"], url + request_["path"], json=body, headers=headers, trust_env=False, timeout=60
    )
    if (parameter := request_.get("refused")) is not None:
        error = reply.json()["error"]
        assert (reply.status_code, error["param"]) == (400, parameter)
        assert error["message"].startswith(f"{parameter}: ")  # what the programs show
        return
    assert reply.status_code == 200, reply.text
    if body is None:
        assert [model["id"] for model in reply.json()["data"]] == ["scripted-2"]
        return
    parts = _events(reply) if body.get("stream") else [reply.json()]
    chat = ChatCompletionChunk if body.get("stream") else ChatCompletion
    for part in parts:
        (Completion if part["object"] == "text_completion" else chat).construct(**part)
    read = [_text(part) for part in parts]
    expected = _of_target(verifier_url, body)
    assert "".join(text for text, _ in read) == expected["text"]
    assert [reason for _, reason in read if reason] == [expected["finish_reason"]]
    tokens = expected["prompt_tokens"], expected["generated_tokens"]
    if body.get("stream") and program == "open_webui":  # it adds up all chunks that have `usage` or `timings`
        usages = [(part.get("usage") or {}) | part.get("timings", {}) for part in parts]
        prompts = [each.get("prompt_tokens") or each.get("prompt_n") or 0 for each in usages]
        assert (sum(prompts), sum(each.get("predicted_n") or 0 for each in usages)) == tokens
    elif not body.get("stream") or "stream_options" in body:
        usage = parts[-1]["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == tokens
