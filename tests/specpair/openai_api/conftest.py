"""Fixtures with OpenAI's endpoints on a real socket: the verifier's, with and without drafting, and the drafter's."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import uvicorn

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from tests.verifier_server.conftest import LiveServer, settings

CHATML = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SCRIPT = Script(seed=2, support=128)  # ASCII only, so that tokens are characters


def target(**given: object) -> ScriptedBackend:
    backend = ScriptedBackend(SCRIPT, slots=4, context_length=512, max_batch_tokens=128)
    backend.chat_template = CHATML
    return backend


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def verifier(**given: Any) -> Iterator[LiveServer]:
    live = LiveServer(settings(max_body_bytes=65536, **given.pop("settings", {})), target(), **given)
    live.wait_until_ready()
    try:
        yield live
    finally:
        live.close()


@contextmanager
def endpoints(kind: str) -> Iterator[tuple[str, str]]:
    """The address of a service, the verifier alone, with server-side drafting, or the drafter; and its verifier's."""
    draft = Script(seed=2, support=128, agreement=0.8)
    if kind == "target":
        with verifier() as live:
            yield live.url, live.url
    elif kind == "fused":
        engine = ScriptedBackend(draft, slots=4, context_length=512)
        with verifier(draft=engine, settings={"draft_backend": "scripted", "draft_model": "1"}) as live:
            yield live.url, live.url
    else:
        with verifier() as live:
            pair = Pair(live.url, DraftModel(Path("2"), "scripted"), texts=4)
            with served(create_app(pair, Options(), texts=4, queue=16)) as url:
                yield url, live.url


@pytest.fixture(scope="module", params=["target", "fused", "drafter"])
def addresses(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with endpoints(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def url(addresses: tuple[str, str]) -> str:
    """The address of a service with OpenAI's endpoints."""
    return addresses[0]


@pytest.fixture(scope="module")
def verifier_url(addresses: tuple[str, str]) -> str:
    """The address of its verifier."""
    return addresses[1]


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client
