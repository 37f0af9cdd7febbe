"""The response class of all JSON replies."""

from typing import Any

from starlette.responses import JSONResponse


class JsonReply(JSONResponse):
    """A reply with a JSON body, given as bytes or as the object to encode.

    It ends with a newline, as a text does: after `curl`, the shell's prompt then begins a line of its own.
    """

    def render(self, content: Any) -> bytes:
        return (content if isinstance(content, bytes) else super().render(content)) + b"\n"
