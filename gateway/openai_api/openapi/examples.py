"""Examples of OpenAI's endpoints, made with the small model that ships; for a chat, with a template of one line."""

import json

from gateway.openai_api.openapi.counted import COUNTED
from gateway.openai_api.responses import examples as responses
from specpair.http_service.openapi.document import Examples
from specpair.http_service.openapi.operation import Json

_MODEL: Json = {
    "id": "stdlib-target-q8_0",
    "object": "model",
    "created": 1795452912,
    "owned_by": "specpair",
    "max_model_len": 2048,
}
USAGE: Json = {
    "prompt_tokens": 4,
    "completion_tokens": 6,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
_TEXT: Json = {
    "id": "cmpl-b5474f8bc40149ea85c94d94b0e24f84",
    "object": "text_completion",
    "created": 1795452917,
    "model": "stdlib-target-q8_0",
}
_ANSWER: Json = {
    "id": "chatcmpl-5caf724642cf4b8c95373fc8acf8dfe7",
    "object": "chat.completion",
    "created": 1795452917,
    "model": "stdlib-target-q8_0",
}
_CHUNK = _ANSWER | {"object": "chat.completion.chunk"}


def _grown(text: str, reason: str | None = None) -> Json:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


def _said(delta: Json, reason: str | None = None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _stream(*chunks: Json) -> tuple[tuple[str, str], ...]:
    return (*(("", json.dumps(chunk, separators=(",", ":"))) for chunk in chunks), ("", "[DONE]"))


EXAMPLES = Examples(
    requests={
        "CompletionRequest": {
            "text": {"prompt": "def main(", "max_tokens": 6, "temperature": 0.8, "seed": 7},
            "prompts as token ids, the likeliest tokens with log probabilities": {
                "prompt": [[0, 511, 2133, 9], [0, 511]],
                "max_tokens": 4,
                "temperature": 0,
                "logprobs": 2,
            },
            "stream": {
                "prompt": "def main(",
                "max_tokens": 6,
                "temperature": 0.8,
                "seed": 7,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            "without drafts, as nothing else changes the time": {
                "prompt": "def main(",
                "max_tokens": 6,
                "temperature": 0.8,
                "seed": 7,
                "speculative": {"mode": "off"},
            },
        },
        "ChatRequest": {
            "question": {
                "messages": [
                    {"role": "system", "content": "Answer with Python code."},
                    {"role": "user", "content": "read a file"},
                ],
                "max_completion_tokens": 8,
                "temperature": 0.8,
                "seed": 7,
            },
            "stream": {"messages": [{"role": "user", "content": "read a file"}], "max_tokens": 8, "stream": True},
        },
        **responses.REQUESTS,
        "TokenizeBody": {
            "text": {"text": "def main("},
            "as to llama-server": {"content": "def main(", "add_special": True, "with_pieces": True},
            "as to vLLM": {"prompt": "def main(", "return_token_strs": True},
            "conversation": {"messages": [{"role": "user", "content": "read a file"}]},
        },
        "DetokenizeRequest": {"tokens": {"tokens": [511, 2133, 9]}},
    },
    responses={
        "Completion": {
            **_TEXT,
            "choices": [_grown("string, text, 100", "length")],
            "usage": USAGE,
            **COUNTED,
        },
        "ChatCompletion": {
            **_ANSWER,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "1992(s):\n    try:\n", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "length",
                }
            ],
            "usage": USAGE | {"prompt_tokens": 8, "completion_tokens": 8, "total_tokens": 16},
            **COUNTED,
        },
        **responses.RESPONSES,
        "TokenizeReply": {"tokens": [0, 511, 2133, 9], "count": 4, "max_model_len": 2048},
        "Detokenized": {"content": "def main(", "prompt": "def main("},
        "AppliedTemplate": {"prompt": "<|user|>read a file<|assistant|>"},
        "ModelList": {"object": "list", "data": [_MODEL]},
        "Model": _MODEL,
    },
    events={
        "/v1/completions": _stream(
            {**_TEXT, "choices": [_grown("string")]},
            {**_TEXT, "choices": [_grown(", text, 100")]},
            {**_TEXT, "choices": [_grown("", "length")], **COUNTED},
        ),
        **responses.EVENTS,
        "/v1/chat/completions": _stream(
            {**_CHUNK, "choices": [_said({"role": "assistant", "content": ""})]},
            {**_CHUNK, "choices": [_said({"content": "1992(s):\n    try:\n"})]},
            {**_CHUNK, "choices": [_said({}, "length")], **COUNTED},
        ),
    },
)
