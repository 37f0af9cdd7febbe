"""Replies are read however their bytes are cut, in the shapes of several servers."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.endpoint.chunks import EventSplitter, Reply, speculation_in
from lab.bench.records import Speculation


def event(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def read(*chunks: Any) -> Reply:
    reply = Reply()
    for chunk in chunks:
        reply.take(chunk if isinstance(chunk, str) else json.dumps(chunk))
    return reply


@given(st.lists(st.dictionaries(st.text(), st.text(), max_size=2), max_size=5), st.lists(st.integers(0, 300)))
def test_events_are_found_wherever_the_stream_is_cut(chunks: list[dict[str, str]], cuts: list[int]) -> None:
    stream = b": comment\n\n" + b"".join(map(event, chunks)) + b"data: [DONE]\r\n\r\n"
    places = [0, *sorted(min(each, len(stream)) for each in cuts), len(stream)]
    splitter = EventSplitter()
    found = [each for begin, end in pairwise(places) for each in splitter.feed(stream[begin:end])]
    assert [json.loads(each) for each in found[:-1]] == chunks
    assert found[-1] == "[DONE]"


def test_a_completion_is_read() -> None:
    reply = read(
        {"choices": [{"text": "a b", "finish_reason": None}]},
        {"choices": [{"text": "", "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        "[DONE]",
    )
    assert (reply.text, reply.finish, reply.is_whole) == ("a b", "length", True)
    assert reply.usage == {"prompt_tokens": 3, "completion_tokens": 2}


def test_a_chunk_brings_text_if_it_has_any() -> None:
    reply = Reply()
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    assert not reply.take(json.dumps(role))
    for delta, text in (
        ({"content": "a"}, "a"),
        ({"reasoning_content": "b"}, "b"),
        ({"reasoning": "c", "content": None}, "c"),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, "f"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, "{}"),
    ):
        assert reply.take(json.dumps({"choices": [{"delta": delta}]}))
        assert reply.parts[-1] == text


def test_an_error_in_a_stream_is_kept() -> None:
    assert read({"error": {"message": "out of memory", "type": "server_error"}}).error == "out of memory"
    assert read({"error": "out of memory"}).error == "out of memory"


@pytest.mark.parametrize("data", ["[1]", "{", "null"])
def test_what_is_no_chunk_is_refused(data: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Reply().take(data)


@pytest.mark.parametrize(
    ("chunk", "told"),
    [
        (
            {
                "metrics": {
                    "speculative_decoding": {
                        "num_draft_tokens": 9,
                        "num_accepted_draft_tokens": 5,
                        "num_spec_steps": 3,
                        "acceptance_histogram": [0, 1, 2, 0],
                    }
                }
            },
            Speculation(drafted=9, accepted=5, rounds=3, accepted_per_round=(0, 1, 2, 0)),
        ),
        (
            {"spec_decode": {"num_drafts": 3, "num_draft_tokens": 9, "num_accepted_tokens": 5}},
            Speculation(drafted=9, accepted=5, rounds=3),
        ),
        ({"timings": {"predicted_n": 4, "draft_n": 9, "draft_n_accepted": 5}}, Speculation(drafted=9, accepted=5)),
        ({"timings": {"predicted_n": 4}}, None),
        ({"metrics": None}, None),
        ({}, None),
    ],
)
def test_speculation_is_read_in_each_shape(chunk: dict[str, Any], told: Speculation | None) -> None:
    assert speculation_in(chunk) == told
