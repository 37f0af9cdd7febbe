"""Bodies of requests: whatever comes is read, or refused with a short error that names the parameter; and seeds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.openai_api.messages.errors import FORM
from gateway.openai_api.messages.objects import read_request
from gateway.openai_api.messages.options import seed_of
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from specpair.http_service.replies.json_replies import error_reply
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling import gumbel


def _refusal(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        read_request(CompletionRequest, body)
    assert len(refused.value.message) < 1000
    reply = error_reply(refused.value, FORM.body(refused.value), FORM.status(refused.value))
    assert json.loads(bytes(reply.body))["error"]["message"] == refused.value.message
    return refused.value


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    _refusal(body)
    _refusal(b'{"prompt": ' + body)


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b'{"prompt": "x", "temperature": NaN}', None, "JSON has no number NaN"),
        (b'{"prompt": "x", "logit_bias": {"1": -Infinity}}', None, "JSON has no number -Infinity"),
        (b'{"prompt": "x", "temperature": 1e999}', "temperature", "finite"),
        (b'{"prompt": "x", "prompt": "y"}', "prompt", "given twice"),
        (b'{"prompt": "x", "logit_bias": {"1": 1, "1": 2}}', "1", "given twice"),
        (b'{"prompt": "x", "logit_bias": {"1": 1, "01": 2}}', "logit_bias", "'01' is no token id"),
        (b'{"prompt": "x", "logit_bias": {"1": true}}', "logit_bias.1", "number"),
        (b'{"prompt": "x", "seed": ' + b"9" * 4301 + b"}", None, "has 4301 digits, at most 4300"),
        (b'{"prompt": "\\ud800"}', None, "half of a surrogate pair"),
        (b'{"prompt": "x", "\\udfff": 1}', None, "half of a surrogate pair"),
        (b'{"prompt": "x", "best_of": true}', "best_of", "valid integer"),
        (b'{"prompt": "x", "n": 2, "best_of": 3}', "best_of", "leave it out, or send the value of n"),
        (b'{"prompt": "x", "repetition_penalty": 0.001}', "repetition_penalty", "greater than or equal to 0.01"),
        (b'{"prompt": "x", "top_k": 9007199254740993}', "top_k", "less than or equal to"),
        (b'{"prompt": "\xff"}', None, "not UTF-8"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b'{"prompt": "x", "metadata": ' + b"[" * 2000 + b"]" * 2000 + b"}", None, "nested too deeply"),
        (b'{"prompt": "x", "' + b"y" * 100_000 + b'": 1}', "y" * 80 + "...", "no such parameter"),
        (b'{"prompt": "x"} x', None, "Extra data, at character 16"),
    ],
    ids=lambda each: repr(each[:40]) if isinstance(each, bytes) else "",
)
def test_what_is_wrong_is_named(body: bytes, param: str | None, message: str) -> None:
    refused = _refusal(body)
    assert refused.details.get("param") == param
    assert message in refused.message


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": [None] * 5000},
        {"prompt": [1] * 5000 + ["x"]},
        {"prompt": [[None]] * 5000},
        {"prompt": "x", "stop": [1] * 5000},
        {"prompt": "x", "logit_bias": {str(token): 101 for token in range(5000)}},
        {"messages": [None] * 5000},
        {"messages": [{"role": "user", "content": [None] * 5000}]},
        {"messages": [{"role": "assistant", "tool_calls": [None] * 5000}]},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_long_wrong_values_are_not_examined_to_their_end(wrong: dict[str, Any]) -> None:
    """To name each of a million wrong items would take half a minute, during which no other request is answered."""
    schema = ChatRequest if "messages" in wrong else CompletionRequest
    with pytest.raises(ValidationError) as refused:
        schema.model_validate_json(json.dumps(wrong))
    assert refused.value.error_count() < 6


@given(st.integers(), st.integers(0, 200))
def test_every_seed_becomes_one_that_the_noise_takes(seed: int, choice: int) -> None:
    assert 0 <= seed_of(seed, choice) < gumbel.SEED_LIMIT


@given(st.integers(0, gumbel.SEED_LIMIT - 1))
def test_choice_0_has_the_seed_itself_and_the_others_have_their_own(seed: int) -> None:
    assert seed_of(seed) == seed
    assert len({seed_of(seed, choice) for choice in range(20)}) == 20
