"""Requests are parsed strictly, and a refusal names the field in one plain sentence."""

import json
import re
from typing import Any

import pytest

from specpair.protocol import messages
from specpair.protocol.errors import InvalidRequest
from specpair.protocol.messages import BatchRequest, GenerateRequest, PrefillRequest, RequestModel, VerifyRequest
from specpair.speculation.acceptance.strategies import Strategy

PROMPTED: list[Any] = [PrefillRequest, GenerateRequest]
PROMPT: dict[str, Any] = {"prompt": "x"}
PREFIX: dict[str, Any] = {"session_id": "s", "length": 3, "hash": "0123456789abcdef"}
DRAFT: dict[str, Any] = {"draft_tokens": []}
NAN, INFINITE = float("nan"), float("inf")
INTEGER, NO_TOKEN = "Input should be a valid integer$", ".* is no token id: write it as a decimal number$"
EXTRA, ONE_PROMPT = "Extra inputs are not permitted$", "give either prompt or prompt_ids$"
IDS = ("", "a b", "a/b", "a\n", "ä", "x" * 129)  # that are no ids of sessions


def parse(schema: type[RequestModel], body: Any) -> Any:
    return messages.parse(schema, body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.mark.parametrize(
    ("schema", "given", "field", "values", "words"),
    [
        (PrefillRequest, PROMPT, "max_tokens", (0, -1, 1.0, True, "5"), ""),
        (PrefillRequest, PROMPT, "top_k", (-1, 1.0, True, "5", None), ""),
        (PrefillRequest, PROMPT, "seed", (-1, 2**53, 1.0, True, "5"), ""),
        (PrefillRequest, PROMPT, "temperature", (-0.1, 100.5, True, "0.5", None, NAN, INFINITE), ""),
        (PrefillRequest, PROMPT, "top_p", (0, 0.0, -1, 1.1, True, "0.5", None, NAN), ""),
        (PrefillRequest, PROMPT, "min_p", (-0.1, 1.1, True, "0.5", None, NAN), ""),
        (PrefillRequest, PROMPT, "presence_penalty", (-2.1, 2.1, True, "0.5", None, NAN), ""),
        (PrefillRequest, PROMPT, "frequency_penalty", (-2.1, 2.1, True, "0.5", None, INFINITE), ""),
        (PrefillRequest, PROMPT, "min_tokens", (-1, 2**53 + 1, 1.0, True, "1", None), ""),
        (PrefillRequest, PROMPT, "repetition_penalty", (0, -1, 0.009, 100.1, True, "1", None, NAN), ""),
        (PrefillRequest, PROMPT, "logprobs", (-1, 21, 1.0, True, "5"), ""),
        (PrefillRequest, PROMPT, "strategy", ("", "guessing", None, 1), ""),
        (PrefillRequest, PROMPT, "self_continue", (1, 0, "true", None), ""),
        (PrefillRequest, PROMPT, "session_id", (*IDS, 5), ""),
        (PrefillRequest, {}, "prompt", (5, ["x"]), ""),
        (PrefillRequest, PROMPT, "temprature", (0.5,), EXTRA),
        (PrefillRequest, PROMPT, "stream", (True,), EXTRA),
        (GenerateRequest, PROMPT, "self_continue", (True,), EXTRA),
        (VerifyRequest, DRAFT, "draft_token", ([2],), EXTRA),
        (VerifyRequest, DRAFT, "next_in_ms", (-0.1, True, "5", NAN, INFINITE, 1.1e7), ""),
        (BatchRequest, {}, "items", ([], [{}] * 257, {}, None), ""),
        (BatchRequest, {"items": [{}]}, "more", (1,), EXTRA),
    ],
)
def test_bad_values_are_refused_by_name(
    schema: type[RequestModel], given: dict[str, Any], field: str, values: tuple[Any, ...], words: str
) -> None:
    for bad in values:
        with pytest.raises(InvalidRequest, match=f"^{field}: {words}") as refused:
            parse(schema, given | {field: bad})
        assert "\n" not in refused.value.message and refused.value.details == {"param": field}


@pytest.mark.parametrize(
    ("schema", "body", "param", "words"),
    [
        *((PrefillRequest, {"prompt_ids": [1, 2, bad]}, "prompt_ids.2", INTEGER) for bad in (1.0, True, "1", None)),
        *((VerifyRequest, {"draft_tokens": [1, 2, bad]}, "draft_tokens.2", INTEGER) for bad in (1.5, [1], "1")),
        *(
            (PrefillRequest, PROMPT | {"logit_bias": {"7": 1.0, bad: 1.0}}, "logit_bias", NO_TOKEN)
            for bad in ("x", "-1", "05", "1.0", "", "²", "9" * 5000)
        ),
        *(
            (GenerateRequest, PROMPT | {"logit_bias": {"7": bad}}, "logit_bias.7", "")
            for bad in (-100.5, 101, True, "1", None, NAN)
        ),
        *(
            (VerifyRequest, {"draft_tokens": [1], "draft_probs": [bad]}, None, "")
            for bad in ({"1": "0.5"}, {"1": True}, {"1": None}, [1], None, 5)
        ),
        *((schema, PROMPT | {"committed_ids": [1, 2]}, "committed_ids", "also give the seed") for schema in PROMPTED),
        (GenerateRequest, PROMPT | {"draft_n": 2}, None, "draft_n: nothing is drafted in mode target"),
        *(
            (schema, body, None, ONE_PROMPT)
            for schema in PROMPTED
            for body in ({}, {"prompt": "x", "prompt_ids": [1]}, {"prompt": None})
        ),
        *((schema, PROMPT | {"prefix": PREFIX}, None, "prefix: give prompt_ids, not prompt$") for schema in PROMPTED),
        *((schema, {"prefix": PREFIX}, None, ONE_PROMPT) for schema in PROMPTED),
        *(
            (PrefillRequest, {"prompt_ids": [], "prefix": PREFIX | {field: bad}}, f"prefix.{field}", "")
            for field, values in (("length", (0, -1, 1.0, "1", None)), ("hash", ("", "a" * 15, "A" * 16, 5, None)))
            for bad in (*values, [])
        ),
        (VerifyRequest, {"position": 3}, "draft_tokens", "Field required"),
        *(
            (PrefillRequest, body, None, "Invalid JSON: ")
            for body in (
                *(b"", b"{", b"nonsense", b"\xff\xfe\x00", b"[" * 10_000),
                *(b'{"prompt": "\\ud800"}', b'{"prompt": "\xed\xa0\x80"}'),
            )
        ),
        *((VerifyRequest, body, None, "Input should be an object$") for body in (b"[]", b"null", b"5", b'"prompt"')),
    ],
)
def test_what_is_wrong_within_and_between_fields_is_named(
    schema: type[RequestModel], body: Any, param: str | None, words: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(schema, body)
    message, found = refused.value.message, refused.value.details["param"]
    assert "\n" not in message and len(message) < 500
    assert re.match(f"({param}: )?{words}" if words else f"{found}: ", message)
    assert found == param or (param is None and str(found).startswith("draft_probs.0"))


def test_what_is_left_out_or_at_its_bounds_is_taken() -> None:
    for good in (0, 12.5, 1e7, None):
        assert parse(VerifyRequest, DRAFT | {"next_in_ms": good}).next_in_ms == good
    for schema in PROMPTED:
        assert parse(schema, PROMPT | {"committed_ids": [1, 2], "seed": 0}).committed_ids == [1, 2]
    assert parse(VerifyRequest, DRAFT).draft_tokens == []


@pytest.mark.parametrize("strategy", Strategy)
def test_self_continue_and_threshold_go_with_some_strategies(strategy: Strategy) -> None:
    bare: dict[str, Any] = {"prompt": "x", "strategy": strategy}
    given = {**bare, "threshold": 0.25}
    good, bad = (given, bare) if strategy is Strategy.THRESHOLD else (bare, given)
    for schema in PROMPTED:
        parse(schema, good)
        with pytest.raises(InvalidRequest, match="threshold"):
            parse(schema, bad)
    assert not parse(PrefillRequest, {**good, "self_continue": False}).self_continue
    if strategy in (Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY):
        assert parse(PrefillRequest, {**good, "self_continue": True}).self_continue
    else:
        with pytest.raises(InvalidRequest, match=f"^self_continue is not possible with the strategy {strategy}: "):
            parse(PrefillRequest, {**good, "self_continue": True})


@pytest.mark.parametrize("bad", IDS)
def test_session_id_in_a_header_obeys_the_same_rule(bad: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^X-Session-Id: not a session id"):
        messages.check_session_id(bad, "X-Session-Id")
    messages.check_session_id("a-B_1.2:3" + "x" * 119, "X-Session-Id")
