"""Fixtures with OpenAI's endpoints on a real socket: the verifier's, with and without drafting, and the drafter's."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
import uvicorn
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import AppOptions, create_app
from gateway.openai_api.messages.fields import TABLE
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from specpair.engines.backend import Backend
from specpair.http_service.app import App
from specpair.http_service.connection import Connection
from tests.verifier_server.conftest import LiveServer
from tests.verifier_server.conftest import settings as settings_of


@pytest.fixture
def no_fault_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a request holds, it is no fault of the service."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


CHATML = (
    "{% if tools %}<tools>{{ tools | tojson }}</>{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SCRIPT = Script(seed=2, support=128)  # ASCII only, so that tokens are characters


def target(seconds_per_pass: float = 0.0) -> ScriptedBackend:
    backend = ScriptedBackend(
        replace(SCRIPT, seconds_per_pass=seconds_per_pass), slots=4, context_length=512, max_batch_tokens=128
    )
    backend.chat_template = CHATML
    return backend


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    http: Any = Connection if isinstance(app, App) else "auto"
    config = uvicorn.Config(app, http=http, log_config=None, ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def serving(backend: Backend, *, draft: Backend | None = None, **given: Any) -> Iterator[LiveServer]:
    """A verifier with this target and, it may be, a draft model. `given`: its settings."""
    live = LiveServer(settings_of(**{"max_body_bytes": 65536} | given), backend, draft=draft)
    live.wait_until_ready()
    try:
        yield live
    finally:
        live.close()


@contextmanager
def verifier(seconds_per_pass: float = 0.0, **given: Any) -> Iterator[LiveServer]:
    with serving(target(seconds_per_pass), **given) as live:
        yield live


@contextmanager
def drafting(
    verifier: str,
    *,
    texts: int = 4,
    queue: int = 16,
    draft: DraftModel | None = DraftModel(Path("2"), "scripted"),
    options: Options = Options(),
    **how: Any,
) -> Iterator[str]:
    """The address of a drafter for the verifier at this address. `how`: its options as a service."""
    pair = Pair(verifier, draft, texts=texts)
    with served(create_app(pair, options, texts=texts, queue=queue, how=AppOptions(**how))) as url:
        yield url


@contextmanager
def endpoints(kind: str, seconds_per_pass: float = 0.0) -> Iterator[tuple[str, str]]:
    """The address of a service, the verifier alone, with server-side drafting, or the drafter; and its verifier's.

    `seconds_per_pass`: of the target; draft tokens come too late for one that takes no time.
    """
    fused: dict[str, Any] = {"draft_backend": "scripted", "draft_model": "1"} if kind == "fused" else {}
    draft = ScriptedBackend(Script(seed=2, support=128, agreement=0.8), slots=4, context_length=512)
    with verifier(seconds_per_pass, draft=draft if fused else None, **fused) as live:
        if kind != "drafter":
            yield live.url, live.url
            return
        with drafting(live.url) as url:
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
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**30), 1e308])
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # halves of surrogate pairs included
NAMES = sorted(
    {*CompletionRequest.model_fields, *ChatRequest.model_fields}.union(
        *({*beside.ignored, *beside.hints, *beside.only, *beside.also} for beside in TABLE.values())
    )
)

VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
