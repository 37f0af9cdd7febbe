"""Thoughts before an answer, at both ends, whole and streamed: apart from the content, and counted."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pytest

from specpair.engines.backend import Logits
from specpair.engines.vocabulary import Kind
from tests.gateway.openai_api.parrot import SWITCH, TEMPLATE, Parrot, asked, called, client_of, parrot_alone, parrots

THOUGHTS = "<think>\nWhy 7?\n</think>\n\n"
BEGUN = {"chat_template_kwargs": {"think": True}}


@pytest.fixture(scope="module", params=["target", "drafter"])
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with parrots(request.param) as url, client_of(url) as client:
        yield client


def told(client: openai.OpenAI, text: str, *, stream: bool, **options: Any) -> tuple[str, str, int]:
    """The thoughts, the content, and how many tokens were counted as thoughts."""
    given = asked(text, **options)
    if not stream:
        done = client.chat.completions.create(**given)
        message = done.choices[0].message
        assert done.usage is not None and done.usage.completion_tokens_details is not None
        count = done.usage.completion_tokens_details.reasoning_tokens
        return getattr(message, "reasoning_content", ""), message.content or "", count or 0
    *chunks, last = client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True})
    deltas = [chunk.choices[0].delta for chunk in chunks]
    thoughts = "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas)
    assert not any(delta.content and getattr(delta, "reasoning_content", "") for delta in deltas)
    assert last.usage is not None and last.usage.completion_tokens_details is not None
    return (
        thoughts,
        "".join(delta.content or "" for delta in deltas),
        last.usage.completion_tokens_details.reasoning_tokens,
    )


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_come_apart(client: openai.OpenAI, stream: bool) -> None:
    written = len(THOUGHTS.rstrip())
    assert told(client, f"{THOUGHTS}Because.", stream=stream) == ("Why 7?", "Because.", written)
    text = "Why 7?\n</think>\n\nBecause."
    assert told(client, text, stream=stream, extra_body=BEGUN) == ("Why 7?", "Because.", written - len("<think>\n"))
    assert told(client, "Because.", stream=stream) == ("", "Because.", 0)
    assert told(client, "never ended", stream=stream, extra_body=BEGUN) == ("never ended", "", len("never ended"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked_for", [{"reasoning_format": "none"}, {"separate_reasoning": False}])
def test_thoughts_stay_in_the_content_if_asked_for(client: openai.OpenAI, stream: bool, asked_for: Any) -> None:
    text, count = f"{THOUGHTS}Because.", len(THOUGHTS.rstrip())
    assert told(client, text, stream=stream, extra_body=asked_for) == ("", text, count)


def test_a_call_that_must_come_may_come_behind_thoughts() -> None:
    shows = TEMPLATE + "{# <think> #}"
    with parrots("target", shows) as url, client_of(url) as client:
        for text, kwargs in ((f"{THOUGHTS}No!", {}), ("Why 7?\n</think>\nNo!", BEGUN)):
            given = asked(text, tools=[SWITCH], tool_choice="required", parallel_tool_calls=False, extra_body=kwargs)
            message = client.chat.completions.create(**given).choices[0].message
            ((name, arguments),) = called(message)
            assert name == "switch" and json.dumps(arguments) in ('{"on": true}', '{"on": false}')
            assert getattr(message, "reasoning_content") == "Why 7?"  # noqa: B009


def test_a_grammar_leaves_no_room_for_thoughts(client: openai.OpenAI) -> None:
    assert told(client, "3", stream=False, extra_body=BEGUN | {"regex": "[0-9]"}) == ("", "3", 0)


class Thinker(Parrot):
    """A parrot with the end of thoughts as a token."""

    def __init__(self) -> None:
        super().__init__(TEMPLATE + "{# <think> #}", size=259)
        self.vocabulary.pieces[-1] = b"</think>"
        self.vocabulary.kinds[-1] = Kind.CONTROL

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        logits = super().logits_after(tokens)
        if bytes(token for token in tokens if token < 256).endswith(b"Why 7?"):
            logits[-1] = 90.0 if tokens[-1] < 256 else -90.0
        return logits


def test_a_grammar_begins_behind_thoughts_that_the_prompt_has_begun() -> None:
    with parrot_alone(Thinker()) as url, client_of(url) as client:
        schema = {"json_schema": {"type": "object", "properties": {"a": {"enum": [1]}}, "additionalProperties": False}}
        for stream in (False, True):
            thoughts, content, count = told(client, "Why 7?", stream=stream, extra_body=BEGUN | schema, max_tokens=60)
            assert (thoughts, count) == ("Why 7?", len("Why 7?") + 1) and content in ('{"a": 1}', "{}")
