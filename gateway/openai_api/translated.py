"""Reads requests as chats. Errors of a chat are in the names of the request that it was made of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gateway.openai_api.messages.objects import TOO_DEEP, read_request, reported
from gateway.openai_api.messages.requests import ChatRequest
from specpair.protocol.errors import InvalidRequest, SpecPairError

E = TypeVar("E", bound=SpecPairError)
R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")
Names = Mapping[str, str]  # of parameters of a chat, or where paths to them begin, and what they are in the request


def chat_of(body: Mapping[str, object], names: Names) -> ChatRequest:
    """The request for a chat with these fields. Raises InvalidRequest, in the caller's names."""
    try:
        return ChatRequest.model_validate(body)
    except ValidationError as error:
        raise renamed(reported(error), names) from None


def translated(schema: type[R], body: bytes, translate: Callable[[R], T]) -> T:
    """What `translate` makes of the request in `body`. Raises InvalidRequest."""
    request = read_request(schema, body)
    try:
        return translate(request)
    except RecursionError:  # it was just not too deep to be read
        raise InvalidRequest(TOO_DEEP) from None


def renamed(error: E, names: Names) -> E:
    """The error with the request's name of its parameter, of which the longest beginning counts."""
    param = error.details.get("param")
    if not isinstance(param, str):
        return error
    path = param.split(".")
    for size in range(len(path), 0, -1):
        if (name := names.get(".".join(path[:size]))) is not None:
            new = ".".join([name, *path[size:]])
            message = new + error.message.removeprefix(param) if error.message.startswith(param) else error.message
            return type(error)(message, **{**error.details, "param": new})
    return error


def given(request: BaseModel, fields: Mapping[str, object]) -> dict[str, object]:
    """Those of `fields` that a request has, with their values, and who drafts."""
    return {name: value for name in (*fields, "speculative") if (value := getattr(request, name)) is not None}


def answer_of(text: str, thoughts: str, calls: Sequence[Any]) -> dict[str, Any]:
    """The fields of an answer as a message of a chat, without what is not there: templates get what is set."""
    beside = {"reasoning_content": thoughts, "tool_calls": calls}
    content = text or (None if calls else "")
    return {"role": "assistant", "content": content} | {name: each for name, each in beside.items() if each}
