"""Examples of Anthropic's endpoints, with a template of one line."""

import json

from gateway.openai_api.openapi.counted import COUNTED
from specpair.http_service.openapi.document import Examples
from specpair.http_service.openapi.operation import Json

_TEXT = "1992(s):\n    try:\n"
_BEGUN: Json = {
    "id": "msg_0b4d5a1e6f7c4c0f9d2e8a7b6c5d4e3f",
    "type": "message",
    "role": "assistant",
    "model": "stdlib-target-q8_0",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {
        "input_tokens": 8,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "output_tokens": 0,
    },
}
_ENDED: Json = {"stop_reason": "max_tokens", "stop_sequence": None}
_USAGE: Json = {"usage": {**_BEGUN["usage"], "output_tokens": 8}}
_EVENTS: tuple[tuple[str, Json], ...] = (
    ("message_start", {"message": _BEGUN}),
    ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": "", "citations": None}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": _TEXT}}),
    ("content_block_stop", {"index": 0}),
    ("message_delta", {"delta": _ENDED, **_USAGE, **COUNTED}),
    ("message_stop", {}),
)
_QUESTION: Json = {
    "system": "Answer with Python code.",
    "messages": [{"role": "user", "content": "read a file"}],
}

EXAMPLES = Examples(
    requests={
        "MessagesRequest": {
            "question": {**_QUESTION, "max_tokens": 8, "temperature": 0.8},
            "stream": {**_QUESTION, "max_tokens": 8, "stop_sequences": ["\n\n"], "stream": True},
        },
        "CountRequest": {"question": _QUESTION},
    },
    responses={
        "MessageReply": {
            **_BEGUN,
            "content": [{"type": "text", "text": _TEXT, "citations": None}],
            **_ENDED,
            **_USAGE,
            **COUNTED,
        },
        "TokenCount": {"input_tokens": 8},
    },
    events={
        "/v1/messages": tuple(
            (name, json.dumps({"type": name, **data}, separators=(",", ":"))) for name, data in _EVENTS
        )
    },
)
