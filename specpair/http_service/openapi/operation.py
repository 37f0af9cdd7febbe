"""One endpoint, as it is registered and as the OpenAPI document describes it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response

from specpair.http_service.replies.events import event_bytes
from specpair.http_service.replies.hang_up import unless_hung_up
from specpair.protocol import errors
from specpair.protocol.errors import SpecPairError
from specpair.protocol.responses import ErrorResponse

Json = dict[str, Any]
Errors = tuple[type[SpecPairError], ...]
ALWAYS: Errors = (
    *(errors.Unauthorized, errors.Forbidden, errors.ForeignHost, errors.ForeignOrigin, errors.HeadTooLarge),
    *(errors.InvalidHead, errors.InternalError),
)  # errors of any request that needs a key
BODY: Errors = (
    *(errors.BodyTooLarge, errors.UnsupportedEncoding, errors.InvalidRequest, errors.RequestTimeout),
    errors.RateLimited,
)  # errors of any request with a body


class ErrorForm(NamedTuple):
    """How an endpoint reports errors."""

    status: Callable[[SpecPairError], int]
    body: Callable[[SpecPairError], Json]
    required: tuple[str, ...]  # fields of `error` that are always there
    model: type[BaseModel] = ErrorResponse  # of the body
    event: Callable[[Json, int], bytes] = lambda body, _number: event_bytes(to_json(body), "error")  # see `last_event`

    def last_event(self, error: SpecPairError, number: int = 0) -> bytes:
        """The event of an error that ends a stream. `number`: how many events it had, comments not counted."""
        return self.event(self.body(error), number)


OWN_ERRORS = ErrorForm(lambda error: error.status, SpecPairError.body, ("code", "type", "message"))


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str  # as Starlette's routes write it: `/files/{name:path}` for a name that may have slashes
    endpoint: Callable[..., Awaitable[Response]]  # its name is the operationId, its docstring the description
    tag: str
    response: type[BaseModel] | None  # None: a stream, or `text`
    errors: Errors
    request: type[BaseModel] | None = None
    examples: Mapping[str, Json] = field(default_factory=dict)  # bodies of requests, by names of their own
    example: Json | None = None  # a reply; None: one is made of the examples of the model's fields
    stream: tuple[tuple[str, Json], ...] = ()  # events of one stream; none: one of each kind
    parameters: tuple[Json, ...] = ()  # those that are no part of the body
    events: tuple[tuple[str, type[BaseModel]], ...] = ()  # names of a stream's events, with the models of their data
    last: tuple[str, ...] = ("end", "error")  # names of events that end a stream; none: it has no end
    chunk: type[BaseModel] | None = None  # the data of a stream's events, if these have no names
    text: str = ""  # an example of the response, if that is plain text
    needs_key: bool = True  # whether it needs the API key, if the service has one
    refusal: tuple[str, Mapping[str, Json]] | None = None  # when the reply's status is 503, and examples of it
    links: Json | None = None  # requests that can follow
    form: ErrorForm = OWN_ERRORS

    @property
    def described_path(self) -> str:
        return re.sub(r":\w+\}", "}", self.path)


def parameter(name: str, where: str, description: str, schema: Json, example: object = None) -> Json:
    """A parameter as the document describes it. `where`: path, query or header."""
    described = {"name": name, "in": where, "description": description, "schema": schema}
    return described | ({"required": True} if where == "path" else {}) | ({"example": example} if example else {})


def add_to(app: FastAPI, operations: Iterable[Operation], *owners: object) -> None:
    """Register the operations. `owners`: the objects that have some of the endpoints as methods.

    An endpoint is cancelled when its client hangs up. Endpoints read and write bodies by themselves, so these are
    Starlette's routes. FastAPI's take three times as long: 56 us against 18 us of a request that only reads its body
    (one core of a Xeon with AVX-512, FastAPI 0.165).
    """
    for operation in operations:
        endpoint, name = operation.endpoint, operation.endpoint.__name__
        if owner := next((each for each in owners if vars(type(each)).get(name) is endpoint), None):
            endpoint = MethodType(endpoint, owner)
        app.add_route(operation.path, partial(unless_hung_up, endpoint), methods=[operation.method])
