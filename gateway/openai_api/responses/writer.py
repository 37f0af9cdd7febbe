"""Writes a response: the object, and the events of its stream in their order."""

import uuid
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from gateway.openai_api.blocks import CALLS, Block, BlockStep, BlockWriter
from gateway.openai_api.generation import TextGeneration
from gateway.openai_api.messages.conversation import ChatMessage
from gateway.openai_api.messages.options import limited
from gateway.openai_api.messages.replies import TokenUsage
from gateway.openai_api.responses import replies
from gateway.openai_api.responses.replies import EVENTS, OutputText, OutputThoughts, ResponseObject, ResponseStatus
from gateway.openai_api.responses.requests import ResponseNamespace, ResponseRequest, ResponseTool
from specpair.http_service.replies.events import event_bytes
from specpair.protocol.errors import SpecPairError

_TEXT = {  # in names of events
    "text": "output_text",
    "thoughts": "reasoning_text",
    "call": "function_call_arguments",
    "free call": "custom_tool_call_input",
}
# So many comments, and an event tells that the response is in progress: some readers wait for events only.
SILENCES = 10
_PREFIX = {"text": "msg", "thoughts": "rs", "call": "fc", "free call": "ctc"}  # of ids


class ResponseWriter(BlockWriter):
    """Writes the response to one request."""

    def __init__(
        self,
        generation: TextGeneration,
        request: ResponseRequest,
        clock: Callable[[], float],
        keep: Callable[[ResponseObject, ChatMessage], object],
    ) -> None:
        """`clock`: seconds since 1970.
        `keep`: is told a response that has ended, with its answer as a message.
        """
        super().__init__(generation, request.logprobs)
        self._id, self._clock, self._keep = uuid.uuid4().hex, clock, keep
        self._numbers, self._silences = count(), 0
        self._functions = {each.name: each for each in request.functions()}
        self._fixed = _of_request(request) | {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": int(clock()),
            "background": False,
            "model": generation.spec.model,
            "truncation": "disabled",
        }
        self._broken = False  # whether an error has ended it

    def begin(self) -> Iterable[bytes]:
        response = self._response("in_progress")
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def silent(self) -> Iterable[bytes]:
        self._silences += 1
        if self._silences % SILENCES:
            return []
        return [self._event("response.in_progress", response=self._response("in_progress"))]

    def end(self) -> Iterable[bytes]:
        for step in [*(() if self.blocks else self.begin_text()), *self.ended()]:
            yield from self.events(step)
        response = self.whole()
        yield self._event(f"response.{response.status}", response=response)

    def failed(self, error: SpecPairError) -> Iterable[bytes]:
        self._broken = True
        return [self._event("response.failed", response=self._response("failed", error))]

    def whole(self) -> ResponseObject:
        if not self.blocks:
            [*self.begin_text()]
        response = self._response("incomplete" if self.reason == "length" else "completed")
        self._keep(response, self.message())
        return response

    def _event(self, name: str, /, **fields: Any) -> bytes:
        event = EVENTS[name](type=name, sequence_number=next(self._numbers), **fields)
        return event_bytes(event.json_bytes(), name)

    def events(self, step: BlockStep) -> list[bytes]:
        """The events for a step: an item begins, and the text in it, which grows and ends before the item."""
        at, block, name = step.at, step.block, _TEXT[step.block.kind]
        where: dict[str, Any] = {"item_id": self._item_id(at, block), "output_index": at}
        inner = where if block.kind in CALLS else where | {"content_index": 0}
        if step.what == "grow":
            logprobs = {"logprobs": step.logprobs} if block.kind == "text" else {}
            return [self._event(f"response.{name}.delta", **inner, delta=step.text, **logprobs)]
        item = {"output_index": at, "item": self._item(at, block, step.what == "end")}
        part = [] if block.kind in CALLS else [inner | {"part": _part(block, step.what == "end")}]
        if step.what == "begin":
            return [
                self._event("response.output_item.added", **item),
                *(self._event("response.content_part.added", **each) for each in part),
            ]
        return [
            self._event(f"response.{name}.done", **inner, **self._whole(block)),
            *(self._event("response.content_part.done", **each) for each in part),
            self._event("response.output_item.done", **item),
        ]

    def _item_id(self, at: int, block: Block) -> str:
        return f"{_PREFIX[block.kind]}_{self._id}{at:02}"

    def _item(self, at: int, block: Block, ended: bool) -> replies.OutputItem:
        cut = (self._broken or self.reason == "length") and at == len(self.blocks) - 1
        status: replies.ItemStatus = "in_progress" if not ended else "incomplete" if cut else "completed"
        id, text = self._item_id(at, block), block.text if ended else ""
        called: dict[str, Any] = {"id": id, "status": status, "call_id": block.id}
        if block.kind == "call":
            return replies.OutputCall(type="function_call", arguments=text, **called, **self._tool(block))
        if block.kind == "free call":
            return replies.OutputTextCall(type="custom_tool_call", input=text, **called, **self._tool(block))
        common: dict[str, Any] = {"id": id, "status": status, "content": [_part(block, True)] if ended else []}
        if block.kind == "thoughts":
            return replies.OutputReasoning(type="reasoning", summary=[], **common)
        return replies.OutputMessage(type="message", role="assistant", **common)

    def _tool(self, block: Block) -> dict[str, Any]:
        """The name of the tool that a call calls, and the namespace, if it is in one."""
        found = self._functions.get(block.name)
        if found is None or found.namespace is None:
            return {"name": block.name}
        return {"name": found.tool.name, "namespace": found.namespace}

    def _whole(self, block: Block) -> dict[str, Any]:
        if block.kind == "call":
            return {"name": self._tool(block)["name"], "arguments": block.text}
        if block.kind == "free call":
            return {"input": block.text}
        return {"text": block.text} | ({"logprobs": block.logprobs} if block.kind == "text" else {})

    def _response(self, status: ResponseStatus, error: SpecPairError | None = None) -> ResponseObject:
        ended, failure, cut = status != "in_progress", None, None
        if error is not None:
            failure = replies.ResponseError(code="server_error", type=error.code, message=error.message)
        if status == "incomplete":
            cut = replies.IncompleteDetails(reason="max_output_tokens")
        whole = ended and error is None
        statistics: dict[str, Any] = self.generation.statistics() if whole else {}
        return ResponseObject(
            **self._fixed,
            **statistics,
            status=status,
            completed_at=int(self._clock()) if ended else None,
            error=failure,
            incomplete_details=cut,
            output=[self._item(at, block, True) for at, block in enumerate(self.blocks)] if ended else [],
            usage=_usage(self.generation.usage()) if whole else None,
        )


def _usage(usage: TokenUsage) -> replies.ResponseUsage:
    return replies.ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=replies.InputTokensDetails(
            cached_tokens=usage.prompt_tokens_details.cached_tokens, cache_write_tokens=0
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=replies.OutputTokensDetails(
            reasoning_tokens=usage.completion_tokens_details.reasoning_tokens
        ),
        total_tokens=usage.total_tokens,
    )


def _part(block: Block, ended: bool) -> OutputText | OutputThoughts:
    text = block.text if ended else ""
    if block.kind == "thoughts":
        return OutputThoughts(type="reasoning_text", text=text)
    return OutputText(type="output_text", text=text, annotations=[], logprobs=block.logprobs if ended else [])


def _tool_report(tool: ResponseTool | ResponseNamespace) -> dict[str, Any]:
    """A tool of the request. The client's type has these fields in every function."""
    if isinstance(tool, ResponseTool) and tool.type == "custom":
        return {"format": {"type": "text"}} | tool.model_dump(exclude_none=True)
    return tool.model_dump(exclude={"format"})


def _of_request(request: ResponseRequest) -> dict[str, Any]:
    """The request's fields in its response."""
    text = request.text.model_dump(exclude_unset=True, by_alias=True) if request.text is not None else {}
    choice = request.tool_choice
    return {
        "instructions": request.instructions,
        "max_output_tokens": limited(request.max_output_tokens),
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": None if request.reasoning is None else request.reasoning.effort, "summary": None},
        "store": request.store is not False,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": text if text.get("format") else text | {"format": {"type": "text"}},
        "tool_choice": "auto" if choice is None else choice if isinstance(choice, str) else choice.flat(),
        "tools": [_tool_report(tool) for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
    }
