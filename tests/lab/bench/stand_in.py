"""A stand-in of an OpenAI-compatible endpoint, with the faults that tests want."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.gateway.openai_api.conftest import served

Json = dict[str, Any]


@dataclass
class StandIn:
    """Answers with a word for each token.

    `refuses`: the message of a 400 to a body, None: none.
    `stream`: the events of a reply, in place of its own.
    `asked`: the bodies of texts of more than one token.
    `on_asked`: called with each of these.
    """

    has_chats: bool = True
    paths: tuple[str, ...] = ("/v1/completions", "/v1/chat/completions")
    key: str | None = None
    refuses: Callable[[Json], str | None] = lambda body: None
    stream: Callable[[Json], list[Any]] | None = None
    counts: bool = True
    asked: list[Json] = field(default_factory=list)
    on_asked: Callable[[Json], None] = lambda body: None

    async def models(self, request: Request) -> Response:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "a wrong key"}}, 401)
        return JSONResponse({"data": [{"id": "m", "owned_by": "tests"}]})

    async def text(self, request: Request) -> Response:
        body = await request.json()
        refused = self.refuses(body)
        if "messages" in body and not self.has_chats:
            refused = "no chat template"
        if refused is not None:
            return JSONResponse({"error": {"message": refused}}, 400)
        if body["max_tokens"] > 1:
            self.asked.append(body)
            self.on_asked(body)
        events = self.stream(body) if self.stream is not None else self.events(body)
        lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
        return StreamingResponse((f"data: {line}\n\n" for line in lines), media_type="text/event-stream")

    def events(self, body: Json) -> list[Any]:
        chat = "messages" in body
        said = [f"w{number} " for number in range(body["max_tokens"])]
        chunks: list[Any] = [{"choices": [{"delta": {"content": each}} if chat else {"text": each}]} for each in said]
        chunks.append({"choices": [{"delta": {}, "text": "", "finish_reason": "length"}]})
        prompt = json.dumps(body.get("messages")) if chat else body["prompt"]
        if self.counts:
            usage = {"prompt_tokens": len(prompt) // 2, "completion_tokens": len(said)}
            chunks.append({"choices": [], "usage": usage, "timings": {"draft_n": 8, "draft_n_accepted": 4}})
        return [*chunks, "[DONE]"]

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its base address."""
        routes = [Route("/v1/models", self.models)]
        handler: Callable[[Request], Awaitable[Response]] = self.text
        routes += [Route(path, handler, methods=["POST"]) for path in self.paths]
        with served(Starlette(routes=routes)) as url:
            yield f"{url}/v1"
