"""Requests are parsed strictly, and a refusal names the field in one plain sentence."""

import json
from typing import Any

import pytest

from specpair.protocol import messages
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.strategies import Strategy

PROMPTED = [messages.PrefillRequest, messages.GenerateRequest]


def refusal(schema: type[messages.RequestModel], body: Any) -> InvalidRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(InvalidRequest) as caught:
        messages.parse(schema, data)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("bad", [1.0, 1.5, True, "1", None, [1]], ids=repr)
@pytest.mark.parametrize("field", ["prompt_ids", "draft_tokens"])
def test_token_ids_must_be_integers(field: str, bad: Any) -> None:
    schema = messages.VerifyRequest if field == "draft_tokens" else messages.PrefillRequest
    error = refusal(schema, {field: [1, 2, bad]})
    assert error.message == f"{field}.2: Input should be a valid integer"
    assert error.details == {"param": f"{field}.2"}


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *(("max_tokens", bad) for bad in (0, -1, 1.0, True, "5")),
        *(("top_k", bad) for bad in (-1, 1.0, True, "5", None)),
        *(("seed", bad) for bad in (-1, 2**53, 1.0, True, "5")),
        *(("temperature", bad) for bad in (-0.1, 100.5, True, "0.5", None, float("nan"), float("inf"))),
        *(("top_p", bad) for bad in (0, 0.0, -1, 1.1, True, "0.5", None, float("nan"))),
        *(("min_p", bad) for bad in (-0.1, 1.1, True, "0.5", None, float("nan"))),
        *(("presence_penalty", bad) for bad in (-2.1, 2.1, True, "0.5", None, float("nan"))),
        *(("frequency_penalty", bad) for bad in (-2.1, 2.1, True, "0.5", None, float("inf"))),
        *(("min_tokens", bad) for bad in (-1, 2**53 + 1, 1.0, True, "1", None)),
        *(("repetition_penalty", bad) for bad in (0, -1, 0.009, 100.1, True, "1", None, float("nan"))),
        *(("logprobs", bad) for bad in (-1, 21, 1.0, True, "5")),
        *(("strategy", bad) for bad in ("", "guessing", None, 1)),
        *(("self_continue", bad) for bad in (1, 0, "true", None)),
        *(("session_id", bad) for bad in ("", "a b", "a/b", "a\n", "ä", "x" * 129, 5)),
        ("prompt", 5),
        ("prompt", ["x"]),
    ],
)
def test_bad_values_are_refused_by_name(field: str, bad: Any) -> None:
    error = refusal(messages.PrefillRequest, {"prompt": "x", field: bad})
    assert error.message.startswith(f"{field}: ")
    assert error.details == {"param": field}


@pytest.mark.parametrize("bad", ["x", "-1", "05", "1.0", "", "²", "9" * 5000], ids=lambda key: key[:9])
def test_logit_bias_names_token_ids(bad: str) -> None:
    error = refusal(messages.PrefillRequest, {"prompt": "x", "logit_bias": {"7": 1.0, bad: 1.0}})
    assert error.message == f"logit_bias: {bad[:20]!r} is no token id: write it as a decimal number"
    assert error.details == {"param": "logit_bias"}


@pytest.mark.parametrize("bad", [-100.5, 101, True, "1", None, float("nan")], ids=repr)
def test_logit_bias_is_a_number_of_at_most_100(bad: Any) -> None:
    assert refusal(messages.GenerateRequest, {"prompt": "x", "logit_bias": {"7": bad}}).details == {
        "param": "logit_bias.7"
    }


@pytest.mark.parametrize("bad", [-0.1, True, "5", float("nan"), float("inf"), 1.1e7], ids=repr)
def test_next_in_ms_must_be_a_number_of_milliseconds(bad: Any) -> None:
    assert refusal(messages.VerifyRequest, {"draft_tokens": [], "next_in_ms": bad}).details == {"param": "next_in_ms"}
    for good in (0, 12.5, 1e7, None):
        body = json.dumps({"draft_tokens": [], "next_in_ms": good}).encode()
        assert messages.parse(messages.VerifyRequest, body).next_in_ms == good


@pytest.mark.parametrize("strategy", Strategy)
def test_self_continue_needs_a_drafter_invariant_strategy(strategy: Strategy) -> None:
    body = {"prompt": "x", "self_continue": True, "strategy": strategy}
    if strategy is Strategy.THRESHOLD:
        body["threshold"] = 0.5
    if strategy in (Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY):
        assert messages.parse(messages.PrefillRequest, json.dumps(body).encode()).self_continue
    else:
        message = refusal(messages.PrefillRequest, body).message
        assert message.startswith(f"self_continue is not possible with the strategy {strategy}: ")
    assert not messages.parse(
        messages.PrefillRequest, json.dumps({**body, "self_continue": False}).encode()
    ).self_continue


@pytest.mark.parametrize("schema", PROMPTED)
@pytest.mark.parametrize("strategy", Strategy)
def test_threshold_belongs_to_its_strategy_only(schema: type[messages.RequestModel], strategy: Strategy) -> None:
    bare: dict[str, Any] = {"prompt": "x", "strategy": strategy}
    given = {**bare, "threshold": 0.25}
    good, bad = (given, bare) if strategy is Strategy.THRESHOLD else (bare, given)
    messages.parse(schema, json.dumps(good).encode())
    assert "threshold" in refusal(schema, bad).message


@pytest.mark.parametrize("schema", PROMPTED)
def test_committed_ids_need_the_seed_they_were_drawn_with(schema: type[messages.PrefillRequest]) -> None:
    body = {"prompt": "x", "committed_ids": [1, 2]}
    assert "give the seed, too" in refusal(schema, body).message
    assert messages.parse(schema, json.dumps({**body, "seed": 0}).encode()).committed_ids == [1, 2]


def test_draft_length_is_refused_where_nothing_is_drafted() -> None:
    assert (
        "draft_n: nothing is drafted in mode target"
        in refusal(messages.GenerateRequest, {"prompt": "x", "draft_n": 2}).message
    )


@pytest.mark.parametrize("bad", [{"1": "0.5"}, {"1": True}, {"1": None}, [1], None, 5])
def test_draft_probs_are_weights_by_token_id(bad: Any) -> None:
    error = refusal(messages.VerifyRequest, {"draft_tokens": [1], "draft_probs": [bad]})
    assert error.message.startswith("draft_probs.0")


def test_batch_items_are_validated_one_by_one() -> None:
    items = [{"session_id": "a", "draft_tokens": [1]}, {"session_id": "b"}, {"draft_tokens": []}, 5]
    batch = messages.parse(messages.BatchRequest, json.dumps({"items": items}).encode())
    assert batch.request(0) == messages.VerifyRequest(session_id="a", draft_tokens=[1])
    for number, words in ((1, "draft_tokens: Field required"), (2, "session_id: Field required"), (3, "Input should")):
        with pytest.raises(InvalidRequest, match=f"^{words}"):
            batch.request(number)


@pytest.mark.parametrize("bad", [[], [{}] * 257, {}, None])
def test_batch_size_is_limited(bad: Any) -> None:
    assert refusal(messages.BatchRequest, {"items": bad}).message.startswith("items: ")


@pytest.mark.parametrize(
    ("schema", "body", "field"),
    [
        (messages.PrefillRequest, {"prompt": "x", "temprature": 0.5}, "temprature"),
        (messages.PrefillRequest, {"prompt": "x", "stream": True}, "stream"),
        (messages.VerifyRequest, {"draft_tokens": [1], "draft_token": [2]}, "draft_token"),
        (messages.GenerateRequest, {"prompt": "x", "self_continue": True}, "self_continue"),
    ],
)
def test_unknown_keys_are_refused(schema: type[messages.RequestModel], body: dict[str, Any], field: str) -> None:
    assert refusal(schema, body).message == f"{field}: Extra inputs are not permitted"


@pytest.mark.parametrize("schema", PROMPTED)
@pytest.mark.parametrize("body", [{}, {"prompt": "x", "prompt_ids": [1]}, {"prompt": None}], ids=str)
def test_exactly_one_of_prompt_and_prompt_ids_is_required(
    schema: type[messages.RequestModel], body: dict[str, Any]
) -> None:
    assert refusal(schema, body).message == "give either prompt or prompt_ids"


def test_draft_tokens_are_required_but_may_be_empty() -> None:
    assert refusal(messages.VerifyRequest, {"position": 3}).message == "draft_tokens: Field required"
    assert messages.parse(messages.VerifyRequest, b'{"draft_tokens": []}').draft_tokens == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b"\xff\xfe\x00", b'{"prompt": "\\ud800"}', b'{"prompt": "\xed\xa0\x80"}', b"[" * 10_000],
    ids=["empty", "cut", "text", "not UTF-8", "lone surrogate", "surrogate bytes", "deep"],
)
def test_invalid_json_is_refused(body: bytes) -> None:
    error = refusal(messages.PrefillRequest, body)
    assert error.message.startswith("Invalid JSON: ")
    assert error.details == {"param": None}


@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b'"prompt"'])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    assert refusal(messages.VerifyRequest, body).message == "Input should be an object"


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "a\n", "ä", "x" * 129])
def test_session_id_in_a_header_obeys_the_same_rule(bad: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^X-Session-Id: not a session id"):
        messages.check_session_id(bad, "X-Session-Id")
    messages.check_session_id("a-B_1.2:3" + "x" * 119, "X-Session-Id")
