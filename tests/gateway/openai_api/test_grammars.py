"""Grammars with OpenAI's own client: its forms and those of other servers, at both ends, whole and streamed."""

import json
import re
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

MESSAGES: list[Any] = [{"role": "user", "content": "Who?"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["rouge", "noir"]}, "number": {"type": "integer", "minimum": 0, "maximum": 36}},
    "required": ["colour", "number"],
    "additionalProperties": False,
}
BET = r'\{"colour": "(rouge|noir)", "number": \d+\}'


class Bet(BaseModel):
    colour: Literal["rouge", "noir"]
    number: int = Field(ge=0, le=36)


def test_the_client_s_own_types_come_back(client: openai.OpenAI) -> None:
    done = client.chat.completions.parse(model="", messages=MESSAGES, response_format=Bet, max_tokens=60, seed=3)
    assert isinstance(done.choices[0].message.parsed, Bet) and done.choices[0].finish_reason == "stop"
    asked: Any = {"type": "json_schema", "json_schema": {"name": "bet", "schema": SCHEMA, "strict": True}}
    stream = client.chat.completions.create(
        model="", messages=MESSAGES, response_format=asked, max_tokens=60, seed=3, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == done.choices[0].message.content


@pytest.mark.parametrize(
    ("given", "pattern"),
    [
        ({"response_format": {"type": "json_object"}}, r"\{.*"),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            r'\{"colour": "(rouge|noir)", "number": \d+\}',
        ),
        ({"json_schema": SCHEMA}, BET),
        ({"structured_outputs": {"json": SCHEMA}}, BET),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, BET),
        ({"structured_outputs": {"json_object": True}}, r"\{.*"),
        ({"structured_outputs": {"regex": "[ab]{3}"}}, "[ab]{3}"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"structured_outputs": {"grammar": 'root ::= "x" "y"*'}}, "xy*"),
        ({"regex": "[ab]{3}", "min_tokens": 20}, "[ab]{3}"),
        ({"choice": ["yes", "no"], "ignore_eos": True}, "yes|no"),
        ({"grammar": 'start: "x" /y+/'}, "xy+"),
        ({"grammar": "", "regex": "", "response_format": {"type": "text"}}, "(?s:.*)"),
    ],
)
def test_each_form_makes_the_text_keep_to_it(client: openai.OpenAI, given: dict[str, Any], pattern: str) -> None:
    for seed in (1, 2):
        options: dict[str, Any] = {"model": "", "max_tokens": 90, "seed": seed, "extra_body": given}
        chat = client.chat.completions.create(messages=MESSAGES, **options).choices[0].message.content
        text = client.completions.create(prompt="def main(x):", **options).choices[0].text
        assert re.fullmatch(pattern, chat or "") and re.fullmatch(pattern, text)


def test_each_of_several_texts_keeps_to_it(client: openai.OpenAI) -> None:
    reply = client.completions.create(
        model="", prompt=["a", "b"], n=3, max_tokens=9, extra_body={"regex": "[0-9]{2}"}, logprobs=1
    )
    assert len(reply.choices) == 6
    for choice in reply.choices:
        assert re.fullmatch("[0-9]{2}", choice.text)
        assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
        assert None not in choice.logprobs.token_logprobs


LARGE = {"type": "integer", "multipleOf": 9999991}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": LARGE}}}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"json_schema": LARGE}, "json_schema: multipleOf comes to 9999991"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": LARGE}}},
            "json_schema: multipleOf comes to 9999991",
        ),
        ({"tools": [TOOL], "tool_choice": "required"}, "tools: .* multipleOf comes to 9999991"),
    ],
)
def test_what_takes_too_much_is_refused_at_both_ends(
    client: openai.OpenAI, given: dict[str, Any], message: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=message):
            client.chat.completions.create(model="", messages=MESSAGES, stream=stream, extra_body=given)
