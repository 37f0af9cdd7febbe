"""OpenAI's endpoints with OpenAI's own client: texts and chats, whole and streamed, and what their options do."""

import json
import re
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel, Field

from backends.scripted import END
from drafter_client import DraftModel, Options, Pair

PROMPT = "def main(x):"


def _text(client: openai.OpenAI, **options: Any) -> str:
    reply = client.completions.create(model="", prompt=PROMPT, **({"max_tokens": 24, "seed": 5} | options))
    return reply.choices[0].text


def _streamed(client: openai.OpenAI, **options: Any) -> list[Any]:
    return list(
        client.completions.create(model="", prompt=PROMPT, stream=True, **({"max_tokens": 24, "seed": 5} | options))
    )


def test_models_lists_the_target(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "scripted-2" and model.object == "model"
    assert client.models.retrieve("scripted-2").id == "scripted-2"


def test_a_text_is_that_of_the_library_and_the_target_for_the_seed(client: openai.OpenAI, verifier_url: str) -> None:
    body = {"prompt": PROMPT, "max_tokens": 24, "seed": 5, "temperature": 1.0}
    expected = httpx.post(f"{verifier_url}/generate", json=body, trust_env=False).json()
    reply = client.completions.create(model="scripted-2", prompt=PROMPT, max_tokens=24, seed=5)
    with Pair(verifier_url, DraftModel(Path("2"), "scripted")) as pair:
        by_library = pair.generate(PROMPT, Options(max_tokens=24, seed=5, temperature=1.0)).read()
    assert reply.choices[0].text == by_library.text == expected["text"]
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None and reply.usage.completion_tokens == 24
    assert reply.usage.prompt_tokens == 1 + len(PROMPT) and reply.usage.total_tokens == 25 + len(PROMPT)


def test_usage_comes_in_a_chunk_of_its_own_if_asked_for(client: openai.OpenAI) -> None:
    *chunks, last = _streamed(client, stream_options={"include_usage": True})
    assert last.choices == [] and last.usage.completion_tokens == 24
    assert all(chunk.usage is None for chunk in chunks)
    assert last.timings["predicted_n"] == 24 and not any(hasattr(chunk, "timings") for chunk in chunks)
    *chunks, last = _streamed(client)  # without it, the last chunk of a text has the statistics
    assert last.timings["predicted_n"] == 24 and not any(hasattr(chunk, "timings") for chunk in chunks)


def test_each_chunk_has_the_usage_so_far_if_asked_for(client: openai.OpenAI) -> None:
    *chunks, last = _streamed(client, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts) and counts[0] > 0 and counts[-1] == last.usage.completion_tokens == 24
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {last.usage.prompt_tokens}
    off = {"include_usage": True, "continuous_usage_stats": False}
    assert not any(chunk.usage for chunk in _streamed(client, stream_options=off)[:-1])


def test_a_chat_is_the_text_behind_the_rendered_template(client: openai.OpenAI) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
    ]
    reply = client.chat.completions.create(model="", messages=messages, max_completion_tokens=12, seed=3)
    prompt = "<system>Be brief</><user>Hello</><assistant>"
    expected = client.completions.create(model="", prompt=prompt, max_tokens=12, seed=3)
    assert reply.choices[0].message.content == expected.choices[0].text
    assert reply.choices[0].message.role == "assistant"
    stream = client.chat.completions.create(model="", messages=messages, max_tokens=12, seed=3, stream=True)
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_comes_after_a_stop_string(client: openai.OpenAI, stream: bool) -> None:
    whole = _text(client)
    for stop in (whole[7], whole[10:13], [whole[15:18], whole[9:11]]):
        stops = [stop] if isinstance(stop, str) else stop
        end = min(whole.index(each) + len(each) for each in stops)
        first = next(whole.index(each) for each in stops if whole.index(each) + len(each) == end)
        if stream:
            chunks = _streamed(client, stop=stop)
            text, reason = "".join(chunk.choices[0].text for chunk in chunks), chunks[-1].choices[0].finish_reason
        else:
            reply = client.completions.create(model="", prompt=PROMPT, max_tokens=24, seed=5, stop=stop)
            text, reason = reply.choices[0].text, reply.choices[0].finish_reason
            assert reply.usage is not None and reply.usage.completion_tokens == end
        assert (text, reason) == (whole[:first], "stop")


def test_choice_0_has_the_seeds_text_and_the_others_have_their_own(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="", prompt=PROMPT, max_tokens=24, seed=5, n=3)
    texts = [choice.text for choice in reply.choices]
    assert texts[0] == _text(client) and len(set(texts)) == 3
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    chunks = _streamed(client, n=3)
    streamed = ["".join(c.choices[0].text for c in chunks if c.choices[0].index == at) for at in range(3)]
    assert streamed == texts
    again = client.completions.create(model="", prompt=PROMPT, max_tokens=24, seed=5, n=2)
    assert [choice.text for choice in again.choices] == texts[:2]


def test_several_prompts(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="", prompt=[PROMPT, "x = "], max_tokens=24, seed=5)
    assert reply.choices[0].text == _text(client)
    assert reply.usage is not None and reply.usage.prompt_tokens == 2 + len(PROMPT) + len("x = ")
    ids = [256, *PROMPT.encode()]
    for prompt in (ids, [ids]):
        reply = client.completions.create(model="", prompt=prompt, max_tokens=24, seed=5)
        assert reply.choices[0].text == _text(client)


def test_echo(client: openai.OpenAI) -> None:
    assert _text(client, echo=True) == PROMPT + _text(client)
    assert "".join(chunk.choices[0].text for chunk in _streamed(client, echo=True)) == PROMPT + _text(client)


def test_logprobs_of_a_chat(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    options: dict[str, Any] = {"model": "", "messages": messages, "max_tokens": 6, "seed": 1}
    reply = client.chat.completions.create(logprobs=True, top_logprobs=3, **options)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(each.token for each in logprobs.content) == reply.choices[0].message.content
    for each in logprobs.content:
        assert len(each.top_logprobs) == 3 and each.top_logprobs[0].logprob >= each.logprob
        assert bytes(each.bytes or ()).decode() == each.token
    chunks = list(client.chat.completions.create(logprobs=True, stream=True, **options))
    streamed = [each for c in chunks if c.choices[0].logprobs for each in c.choices[0].logprobs.content or ()]
    assert [each.logprob for each in streamed] == [each.logprob for each in logprobs.content]


def test_logprobs_of_a_text(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="", prompt=PROMPT, max_tokens=6, seed=1, logprobs=2)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens is not None and logprobs.top_logprobs is not None
    assert "".join(logprobs.tokens) == reply.choices[0].text
    assert logprobs.text_offset == list(range(6)) and all(len(top) in (2, 3) for top in logprobs.top_logprobs)
    assert logprobs.token_logprobs == [
        top[token] for token, top in zip(logprobs.tokens, logprobs.top_logprobs, strict=True)
    ]


def test_processors_change_the_text_as_in_generate(client: openai.OpenAI, verifier_url: str) -> None:
    bias = {"97": 8.0, "98": -100}
    options: dict[str, Any] = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "logit_bias": bias}
    extra = {"repetition_penalty": 1.2, "min_p": 0.02, "top_k": 40}
    text = _text(client, **options, extra_body=extra)
    body = {"prompt": PROMPT, "max_tokens": 24, "seed": 5, "temperature": 1.0} | options | extra
    assert text == httpx.post(f"{verifier_url}/generate", json=body, trust_env=False).json()["text"]
    assert text != _text(client) and "b" not in text


@pytest.mark.parametrize(
    ("extra", "count", "reason"),
    [({}, 1, "stop"), ({"min_tokens": 9}, 10, "stop"), ({"min_tokens": 3, "ignore_eos": True}, 24, "length")],
    ids=["the model ends it", "no end before min_tokens", "ignore_eos"],
)
def test_the_model_ends_a_text_when_it_may(
    client: openai.OpenAI, extra: dict[str, Any], count: int, reason: str
) -> None:
    """With biases that make the model end a text as soon as it may, and change nothing else."""
    bias = {str(token): -100 for token in range(128)} | {str(END): 100}
    alone = _text(client, temperature=0)
    options: dict[str, Any] = {"temperature": 0, "logit_bias": bias, "extra_body": extra}
    expected = alone[: count - (reason == "stop")], reason
    chunks = _streamed(client, **options, stream_options={"include_usage": True})
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert ("".join(choice.text for chunk in chunks for choice in chunk.choices), reasons[-1]) == expected
    assert chunks[-1].usage.completion_tokens == count
    reply = client.completions.create(model="", prompt=PROMPT, max_tokens=24, seed=5, **options)
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == expected


def test_a_prediction_changes_the_usage_and_not_the_text(client: openai.OpenAI, request: pytest.FixtureRequest) -> None:
    asked: Any = {"messages": [{"role": "user", "content": "Hi"}], "model": "", "max_tokens": 100, "temperature": 0}
    plain = client.chat.completions.create(**asked)
    text = plain.choices[0].message.content
    assert text is not None
    predicted = client.chat.completions.create(**asked, prediction={"type": "content", "content": text})
    assert predicted.choices[0].message.content == text
    details = predicted.usage.completion_tokens_details if predicted.usage else None
    assert details is not None and details.accepted_prediction_tokens is not None
    # Where a draft model runs beside the target, its tokens may come too late, as this target takes no time.
    least = 30 if request.node.callspec.params["addresses"] == "target" else 0
    assert least <= details.accepted_prediction_tokens < 100


def test_timings_and_draft_tokens_by_the_names_of_other_servers(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="", prompt=PROMPT, max_tokens=24, seed=5).model_dump()
    timings, spec = reply["timings"], reply["spec_decode"]
    assert timings["predicted_n"] == 24 and timings["prompt_n"] == 1 + len(PROMPT)
    assert timings["draft_n"] == spec["num_draft_tokens"] >= timings["draft_n_accepted"] == spec["num_accepted_tokens"]
    assert sum(spec["num_accepted_tokens_per_pos"]) == spec["num_accepted_tokens"]


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
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, BET),
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
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": LARGE}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"json_schema": LARGE}, "json_schema#.*/multipleOf: multipleOf comes to 9999991"),
        ({"response_format": FORMAT}, "json_schema#.*/multipleOf: multipleOf comes to 9999991"),
        ({"tools": [TOOL], "tool_choice": "required"}, "multipleOf: multipleOf comes to 9999991"),
    ],
)
def test_what_takes_too_much_is_refused_at_both_ends(
    client: openai.OpenAI, given: dict[str, Any], message: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=message):
            client.chat.completions.create(model="", messages=MESSAGES, stream=stream, extra_body=given)
