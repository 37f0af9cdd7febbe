"""Services with a model that answers what the last message of the user says, so that a test says what it writes."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import openai
from openai.types.chat import ChatCompletionMessage

from backends.scripted import END, Script, ScriptedBackend
from gateway.openai_api.tools.styles import Style
from specpair.engines.backend import Logits
from tests.gateway.openai_api.conftest import drafting, serving

# It writes calls as Hermes does. `think`: the prompt begins thoughts.
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</>{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if think %}<think>\n{% endif %}{% endif %}"
)


class Parrot(ScriptedBackend):
    """Its other tokens stay possible, so that a grammar can forbid what the user says."""

    def __init__(self, template: str = TEMPLATE, *, size: int = 258, context: int = 4096) -> None:
        """`size`: of its vocabulary."""
        super().__init__(Script(seed=2, vocabulary_size=size), slots=4, context_length=context, max_batch_tokens=512)
        self.chat_template = template

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        logits = super().logits_after(tokens)
        text = bytes(token for token in tokens if token < 256)
        _, asked, answered = text.rpartition(b"<assistant>")
        if asked:
            wanted = self.wanted(text[: len(text) - len(answered)])
            written = answered.removeprefix(b"<think>\n") if not wanted.startswith(b"<think>\n") else answered
            logits[wanted[len(written)] if len(written) < len(wanted) else END] = 60.0
        return logits

    def wanted(self, prompt: bytes) -> bytes:
        """What it answers to a conversation."""
        return prompt.rpartition(b"<user>")[2].partition(b"</>")[0]


class Speaker(Parrot):
    """Answers what stands between `SAY[` and `]SAY`, of which `|||` parts the answers, one for each turn."""

    def __init__(self) -> None:
        super().__init__(context=16384)

    def wanted(self, prompt: bytes) -> bytes:
        _, _, asked = prompt.rpartition(b"SAY[")
        said, _, behind = asked.partition(b"]SAY")
        return said.replace(rb"\"", b'"').split(b"|||")[behind.count(b"<assistant>") - 1]


@contextmanager
def parrots(kind: str, template: str = TEMPLATE, style: Style | None = None) -> Iterator[str]:
    """The address of a service: the verifier's (target), or the drafter's. `style`: its setting."""
    settings = {} if style is None or kind == "drafter" else {"tool_style": style.value}
    with parrot_alone(Parrot(template), **settings) as verifier, end_of(kind, verifier, style) as url:
        yield url


@contextmanager
def end_of(kind: str, verifier: str, style: Style | None = None, **how: Any) -> Iterator[str]:
    """The address of a verifier (target), or of a drafter for it."""
    if kind == "target":
        yield verifier
        return
    with drafting(verifier, tool_style=style, **how) as url:
        yield url


@contextmanager
def parrot_alone(parrot: Parrot, **settings: Any) -> Iterator[str]:
    """The address of a verifier with this model."""
    with serving(parrot, **settings) as live:
        yield live.url


@contextmanager
def client_of(url: str) -> Iterator[openai.OpenAI]:
    """OpenAI's client of a service."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def asked(text: str, **options: Any) -> dict[str, Any]:
    """The options of a chat whose answer is `text`."""
    return {"model": "", "messages": [{"role": "user", "content": text}], "seed": 1} | options


def tool(name: str, **properties: str) -> dict[str, Any]:
    """A tool with required parameters of these types."""
    members = {key: {"type": kind} for key, kind in properties.items()}
    schema = {"type": "object", "properties": members, "additionalProperties": False}
    function = {"name": name, "description": "Works", "parameters": schema | {"required": [*properties]}}
    return {"type": "function", "function": function}


TOOLS: list[Any] = [tool("look", town="string"), tool("add", a="integer", b="integer")]
LOOK = '<tool_call>\n{"name": "look", "arguments": {"town": "Köln"}}\n</tool_call>'
ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
SWITCH = tool("switch", on="boolean")


def called(message: ChatCompletionMessage) -> list[tuple[str, Any]]:
    """The calls of a message: names and arguments."""
    calls = message.tool_calls or []
    assert all(call.id and call.type == "function" for call in calls)
    assert len({call.id for call in calls}) == len(calls)
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls if call.type == "function"]
