"""An application that puts limits on the connections of its server, also where nobody configures the server."""

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from http_service.connections.guarded import guard_server


class App(FastAPI):
    """The application of a service: under uvicorn, its connections have limits, however uvicorn was started."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            guard_server(receive)
        await super().__call__(scope, receive, send)
