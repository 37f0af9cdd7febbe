"""Reading SGLang's replies: recorded ones, damaged ones, and streams of every kind."""

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.protocol.errors import SpecPairError
from tests.stand_ins.sglang import RECORDED, SglangStandIn
from verifier_server.engine.sglang.api import PassPrompt, SglangApi
from verifier_server.engine.sglang.replies import Judged, Stream, UnusableReply, judged, refused

SIZE = 151_936
JUDGED = RECORDED["judged"]
Change = Callable[[Any], object]


def read(reply: Any, size: int = SIZE) -> Judged:
    return judged(reply, JUDGED["prompt"], JUDGED["start"], size)


def test_recorded_reply_is_read_and_of_tokens_that_tie_the_first_is_taken() -> None:
    assert read(JUDGED["reply"]) == Judged(choices=[470, 830, 198], fed=3, cached=4)


def test_token_that_is_told_as_0_is_the_last_of_the_vocabulary() -> None:
    reply = copy.deepcopy(JUDGED["reply"])
    reply["meta_info"]["input_token_logprobs"][2][1] = 0
    reply["meta_info"]["input_top_logprobs"][2] = [[-1.5, 830, None]]
    assert read(reply, size=4523).choices == [470, 830, 198]
    with pytest.raises(UnusableReply, match="is about token 0"):
        read(reply)


def meta(name: str, value: Any) -> Change:
    return lambda reply: reply["meta_info"].update({name: value})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda reply: reply.pop("meta_info"), "it has no meta_info"),
        (meta("finish_reason", RECORDED["not_numbers"]), "the model's logits are not numbers"),
        (meta("finish_reason", {"type": "stop", "matched": "</s>"}), "finish_reason is .*"),
        (meta("finish_reason", "length"), "finish_reason is 'length'"),
        (meta("prompt_tokens", 6), "prompt_tokens is 6, for a prompt of 7 tokens"),
        (meta("cached_tokens", None), "cached_tokens is None"),
        (meta("input_top_logprobs", None), "input_top_logprobs has None, expected 3"),
        (meta("input_top_logprobs", [None, [[-0.5, 470, None]]]), "input_top_logprobs has 2 entries, expected 3"),
        (meta("input_top_logprobs", [None, None, [[-0.5, 1, None]]]), r"input_top_logprobs.1 names no likeliest token"),
        (meta("input_top_logprobs", [None, [[-0.5, 1, None]], [7]]), r"input_top_logprobs.2 has 7 in place of .*"),
        (
            meta("input_top_logprobs", [None, [[None, 1, None]], []]),
            r"input_top_logprobs.1 has the log probability No.*",
        ),
        (meta("input_top_logprobs", [None, [[-1.0, SIZE, None]], []]), rf"input_top_logprobs.1 has {SIZE}, which .*"),
        (
            meta("input_token_logprobs", [[None, 262, None], [-0.2, 470, None], [-2.0, 1, None]]),
            "inp.* about token 1.*",
        ),
        (lambda reply: reply.update(output_ids=[]), "output_ids has 0 tokens, and one was asked for"),
        (lambda reply: reply.update(output_ids=["198"]), "output_ids has '198', which is none of .*"),
        (lambda reply: reply.pop("output_ids"), "output_ids is None"),
    ],
)
def test_damaged_reply_gives_no_token(damage: Change, words: str) -> None:
    reply = copy.deepcopy(JUDGED["reply"])
    damage(reply)
    with pytest.raises(UnusableReply, match=f"^{words}$"):
        read(reply)


@pytest.mark.parametrize("told", RECORDED["errors"])
def test_errors_say_what_sglang_tells(told: Any) -> None:
    error = refused(told["status"], told["body"])
    assert error.code == told["code"]
    message = told["body"].get("message") or told["body"]["error"]
    assert (message if isinstance(message, str) else message["message"]) in error.message


def test_aborted_pass_is_an_error() -> None:
    reply = copy.deepcopy(JUDGED["reply"])
    reply["meta_info"]["finish_reason"] = RECORDED["aborted"]
    with pytest.raises(SpecPairError, match=r"^SGLang answers HTTP 500: Aborted$"):
        read(reply)


def test_recorded_stream_is_read() -> None:
    told = RECORDED["stream"]
    stream = Stream(told["prompt_len"], SIZE)
    pieces = [piece for line in told["lines"] if (piece := stream.piece(line)) is not None]
    assert [token for piece in pieces for token in piece.tokens] == told["tokens"]
    assert [piece.fed for piece in pieces] == [1, 0, 0]
    assert [piece.done for piece in pieces] == [False, False, True]


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.lists(st.integers(0, 2), min_size=20, max_size=20),
    st.booleans(),
)
def test_stream_gives_each_token_once(tokens: list[int], told: list[bool], ahead: list[int], incremental: bool) -> None:
    """Events may leave steps out; those that tell all tokens may be ahead of their number."""
    stream, found, known = Stream(3, 100), list[int](), 0
    for total in range(1, len(tokens) + 1):
        last = total == len(tokens)
        if not (told[total - 1] or last):
            continue
        ids = tokens[known:total] if incremental else tokens[: total + (0 if last else ahead[total - 1])]
        known = total
        meta = {"prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": total, "finish_reason": None}
        piece = stream.piece("data: " + json.dumps({"output_ids": ids, "meta_info": meta}))
        assert piece is not None
        found += piece.tokens
    assert found == tokens


def test_stream_with_a_gap_or_an_error_gives_no_token() -> None:
    meta = {"prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 3, "finish_reason": None}
    with pytest.raises(UnusableReply, match=r"^output_ids has 1 tokens after 0, and completion_tokens is 3$"):
        Stream(3, 100).piece("data: " + json.dumps({"output_ids": [7], "meta_info": meta}))
    with pytest.raises(UnusableReply, match=r"^it is no JSON$"):
        Stream(3, 100).piece('data: {"output_ids"')
    told = {"error": {"message": "no", "type": "invalid_request_error", "code": 503, "retryable": False}}
    with pytest.raises(SpecPairError, match=r"^SGLang has no room: no$"):
        Stream(3, 100).piece("data: " + json.dumps(told))


def shape(value: Any) -> Any:
    """What kinds of values stand where; those of lists by their first items."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [shape(each) for each in value[:2]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def test_stand_in_s_replies_have_the_recorded_shapes() -> None:
    server = SglangStandIn(ScriptedBackend(Script(seed=2)))
    replies: list[Any] = []

    def keep(reply: Any) -> Any:
        replies.append(reply)
        return reply

    server.damage = keep

    async def ask() -> None:
        api = SglangApi(server.url, None)
        api.vocabulary_size = 258
        for _ in range(2):  # the second time, the cache has it
            await api.judge(PassPrompt.of([256, 1, 2, 3], "salt"), 2)
            [_ async for _ in api.decode(PassPrompt.of([256, 1, 2, 3], "salt"), 3, [257])]
        await api.close()

    try:
        asyncio.run(ask())
    finally:
        server.kill()
    assert shape(replies[4]) == shape(JUDGED["reply"])
    events = [json.loads(line[6:]) for line in RECORDED["stream"]["lines"] if "{" in line]
    for told in (*replies[5:8], *events):  # some fields come with the first or the last event only
        told["meta_info"].pop("response_sent_to_client_ts", None)
        told["meta_info"].pop("e2e_latency", None)
    assert shape(replies[5]) == shape(events[0]) and {*replies[7]["meta_info"]} == {*events[2]["meta_info"]}
    for name, told in (("model_info", server.model), ("server_info", server.server)):
        assert {*told} <= {*RECORDED[name]}
