"""What programs send, replayed: each finds in the reply what it reads there, and the text is the target's.

`recorded/*.json` say of which program and version the requests are. `refused`: the parameter that is refused, because
it would change the text.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

Json = dict[str, Any]
FOLDER = Path(__file__).with_name("recorded")
RECORDED = [
    (path.stem, request)
    for path in sorted(FOLDER.glob("*.json"))
    for request in json.loads(path.read_text(encoding="utf-8"))["requests"]
]
SEED = {"seed": 7}  # for requests without one, so that the text is determined
_OF_TARGET: dict[str, Json] = {}  # replies of the verifier's own endpoint, by request


class Read(NamedTuple):
    """What a program has read. Tokens: of the prompt, and generated."""

    text: str
    finish_reason: str | None
    tokens: tuple[int, int] | None


def _replayed(url: str, request: Json) -> httpx.Response:
    body = None if "body" not in request else json.dumps(SEED | request["body"]).encode()
    return httpx.request(
        request["method"], url + request["path"], content=body, headers=request["headers"], trust_env=False, timeout=60
    )


def _events(reply: httpx.Response) -> list[Json]:
    """The events before the last one, `[DONE]`. Comments are left out."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in reply.text.split("\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def _openai_stream(events: list[Json]) -> Read:
    """As the `llm` CLI, aider and Continue do, with OpenAI's library."""
    text, reason, tokens = "", None, None
    for event in events:
        chunk = (Completion if event["object"] == "text_completion" else ChatCompletionChunk).construct(**event)
        if chunk.usage is not None:
            tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
        if not chunk.choices:
            continue
        choice: Any = chunk.choices[0]
        reason = choice.finish_reason or reason
        if isinstance(chunk, Completion):
            text += choice.text
        else:
            assert not choice.delta.tool_calls and choice.delta.function_call is None
            text += choice.delta.content or ""
    return Read(text, reason, tokens)


def _openai_whole(reply: Json) -> Read:
    whole = (Completion if reply["object"] == "text_completion" else ChatCompletion).construct(**reply)
    choice: Any = whole.choices[0]
    assert whole.usage is not None
    tokens = whole.usage.prompt_tokens, whole.usage.completion_tokens
    return Read(choice.text if isinstance(whole, Completion) else choice.message.content, choice.finish_reason, tokens)


def _cline_stream(events: list[Json]) -> Read:
    """As Cline does: the AI SDK's schema of a chunk."""
    text, reason, tokens = "", None, None
    for event in events:
        assert isinstance(event["id"], str) and isinstance(event["created"], int) and isinstance(event["model"], str)
        for choice in event["choices"]:
            assert choice["delta"].get("role", "assistant") == "assistant"
            text += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
        if (usage := event.get("usage")) is not None:
            assert all(isinstance(usage[name], int) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
            tokens = usage["prompt_tokens"], usage["completion_tokens"]
    return Read(text, reason, tokens)


def _open_webui_stream(events: list[Json]) -> Read:
    """As Open WebUI does: it adds up the tokens of all chunks that have `usage` or `timings`."""
    text, reason, tokens = "", None, (0, 0)
    for event in events:
        usage = (event.get("usage") or {}) | event.get("timings", {})
        prompt = usage.get("prompt_tokens") or usage.get("prompt_n") or 0
        generated = usage.get("completion_tokens") or usage.get("predicted_n") or 0
        tokens = tokens[0] + prompt, tokens[1] + generated
        for choice in event["choices"][:1]:
            text += choice["delta"].get("content") or ""
            reason = choice.get("finish_reason") or reason
    return Read(text, reason, tokens if tokens[0] else None)


STREAMS: dict[str, Callable[[list[Json]], Read]] = {
    **dict.fromkeys(("llm", "aider", "continue"), _openai_stream),
    "cline": _cline_stream,
    "open_webui": _open_webui_stream,
}


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


@pytest.mark.parametrize(("program", "request_"), RECORDED, ids=[f"{name}: {each['what']}" for name, each in RECORDED])
def test_programs_get_what_they_read(url: str, verifier_url: str, program: str, request_: Json) -> None:
    reply = _replayed(url, request_)
    if (parameter := request_.get("refused")) is not None:
        error = reply.json()["error"]
        assert (reply.status_code, error["param"]) == (400, parameter)
        assert error["message"].startswith(f"{parameter}: ")  # what the programs show
        return
    assert reply.status_code == 200, reply.text
    if request_["path"] == "/v1/models":
        assert [model["id"] for model in reply.json()["data"]] == ["scripted-2"]
        return
    body = SEED | request_["body"]
    read = STREAMS[program](_events(reply)) if body.get("stream") else _openai_whole(reply.json())
    expected = _of_target(verifier_url, body)
    tokens = expected["prompt_tokens"], expected["generated_tokens"]
    assert (read.text, read.finish_reason) == (expected["text"], expected["finish_reason"])
    counted = not body.get("stream") or "stream_options" in body
    assert read.tokens == (tokens if counted or program == "open_webui" else None)
