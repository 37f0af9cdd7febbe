"""Reads the replies of OpenAI-compatible endpoints: server-sent events, and what their chunks say. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.bench.records import Speculation

_DONE = "[DONE]"


class EventSplitter:
    """Splits a stream of bytes into the data of its server-sent events, however they are cut into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the data of each event that ends in `data`. Comments and events without data are left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):  # each event has one line of data, as JSON has no line ends
                yield line[5:].strip().decode("utf-8", "replace")


@dataclass
class Reply:
    """What the chunks of a reply have said so far.

    `text`: contents, thoughts, and tool calls as they were written.
    `usage`, `finish`, `speculation`: None until they are told.
    `error`: what an error within the stream says.
    `is_whole`: whether the stream said that it is over.
    """

    parts: list[str] = field(default_factory=list)
    usage: Mapping[str, Any] | None = None
    finish: str | None = None
    speculation: Speculation | None = None
    error: str | None = None
    is_whole: bool = False

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def take(self, data: str) -> bool:
        """Take the data of an event. Returns whether it brought text. Raises ValueError if it is no chunk."""
        if data == _DONE:
            self.is_whole = True
            return False
        chunk = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError("an event is no object of JSON")
        if chunk.get("error"):
            self.error = _message(chunk["error"])
            return False
        said = ""
        for choice in chunk.get("choices") or []:
            said += _said(choice)
            self.finish = choice.get("finish_reason") or self.finish
        if said:
            self.parts.append(said)
        self.usage = chunk.get("usage") or self.usage
        self.speculation = speculation_in(chunk) or self.speculation
        return bool(said)


def _said(choice: Mapping[str, Any]) -> str:
    """The text in a chunk's choice, of a completion or of a chat."""
    delta = choice.get("delta") or choice.get("message") or {}
    found = [choice.get("text"), delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content")]
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        found += [function.get("name"), function.get("arguments")]
    return "".join(each for each in found if isinstance(each, str))


def _message(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def speculation_in(chunk: Mapping[str, Any]) -> Speculation | None:
    """What a chunk tells of draft tokens, in one of three shapes; None: nothing.

    vLLM's and ours, `metrics.speculative_decoding`; ours, `spec_decode`; llama-server's and ours, `timings`.
    """
    found = (chunk.get("metrics") or {}).get("speculative_decoding")
    if found and "num_draft_tokens" in found:
        histogram = found.get("acceptance_histogram")
        return Speculation(
            drafted=found["num_draft_tokens"],
            accepted=found["num_accepted_draft_tokens"],
            rounds=found.get("num_spec_steps"),
            accepted_per_round=tuple(histogram) if histogram else None,
        )
    found = chunk.get("spec_decode")
    if found and "num_draft_tokens" in found:
        return Speculation(
            drafted=found["num_draft_tokens"], accepted=found["num_accepted_tokens"], rounds=found.get("num_drafts")
        )
    found = chunk.get("timings")
    if found and "draft_n" in found:
        return Speculation(drafted=found["draft_n"], accepted=found["draft_n_accepted"])
    return None
