"""Fixtures with OpenAI's endpoints on a real socket: the verifier's, alone and with server-side drafting."""

from collections.abc import Iterator

import openai
import pytest

from backends.scripted import Script, ScriptedBackend
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


@pytest.fixture(scope="module", params=["target", "fused"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a service with OpenAI's endpoints."""
    draft = None
    if request.param == "fused":
        draft = ScriptedBackend(Script(seed=2, support=128, agreement=0.8), slots=4, context_length=512)
    given = {} if draft is None else {"draft_backend": "scripted", "draft_model": "1"}
    live = LiveServer(settings(max_body_bytes=65536, **given), target(), draft=draft)
    live.wait_until_ready()
    yield live.url
    live.close()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client
