"""What tools that a provider ran have answered, as text."""

import json
from typing import Any

from gateway.openai_api.messages.objects import shown

_PARTS_OF_TEXT = ("text", "input_text", "output_text", "logs")
_NO_TEXT = ("image", "base64", "screenshot", "file", "url", "pdf", "audio")  # in names of types


def hosted_text(answer: Any) -> str:
    """What a tool that a provider ran has answered, as text: JSON, unless it is text or parts of it.

    Raises ValueError for images and files.
    """
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list) and all(
        isinstance(each, dict) and each.get("type") in _PARTS_OF_TEXT for each in answer
    ):
        return "\n".join(str(each.get("text", each.get("logs", ""))) for each in answer)
    return json.dumps(_readable(answer), ensure_ascii=False)


def _readable(value: Any) -> Any:
    """A value of JSON without what only its provider can read."""
    if isinstance(value, list):
        return [_readable(each) for each in value]
    if not isinstance(value, dict):
        return value
    if any(word in str(value.get("type")) for word in _NO_TEXT):
        raise ValueError(f"it holds {shown(str(value['type']))}: the model reads text alone, leave it out")
    return {name: _readable(each) for name, each in value.items() if not name.startswith("encrypted_")}
