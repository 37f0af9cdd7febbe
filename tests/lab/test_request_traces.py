"""Traces of every form give their requests, lazily; what is no trace is named with its line."""

import io
import json
import logging
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.request_traces import BadTrace, TracedRequest, in_order, requests
from specpair.http_service.observability.logs import JsonFormatter, log_ended_text

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FORMS = {
    "azure": (
        AZURE + "1970-01-01 00:00:46.2500001,10,4\n1970-01-01 00:00:47,20,3\n",
        [TracedRequest(46.2500001, 10, 4), TracedRequest(47.0, 20, 3)],
    ),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n",
        [TracedRequest(5.0, 472, 18)],
    ),
    "burstgpt with sessions": (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n1.5,s1,2,GPT-4,7,8\n",
        [TracedRequest(1.5, 7, 8, "s1")],
    ),
    "mooncake": (
        '{"timestamp": 500, "input_length": 10, "output_length": 4, "hash_ids": [1]}\n\n',
        [TracedRequest(0.5, 10, 4)],
    ),
    "ours": (
        '{"seconds": 1, "input_tokens": 2, "output_tokens": 3, "session": "a", "tenant": "b"}\n',
        [TracedRequest(1.0, 2, 3, "a", "b")],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_found_by_its_columns_or_keys(form: str) -> None:
    text, expected = FORMS[form]
    assert list(requests(io.StringIO("\ufeff" + text), "t")) == expected


def test_texts_of_a_verifiers_log_began_before_their_lines() -> None:
    log = logging.getLogger("specpair.texts")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    before = log.level
    log.setLevel(logging.INFO)
    try:
        log_ended_text(12, 40, 2.0, 30, 20, mode="remote", ended_by="stop", session_id="s1")
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    line = json.loads(stream.getvalue()) | {"time": "1970-01-01T00:00:10.500+00:00"}
    other = '{"time": "1970-01-01T00:00:00.000+00:00", "level": "INFO", "logger": "uvicorn.error", "message": "x"}\n'
    found = list(requests([other, json.dumps(line)], "verifier.log"))
    assert found == [TracedRequest(8.5, 12, 40, "s1")]


def test_no_more_is_read_than_is_asked_for() -> None:
    def endless() -> Iterator[str]:
        yield AZURE
        while True:
            yield "1970-01-01 00:00:01,1,1\n"

    assert len(list(islice(requests(endless(), "t"), 3))) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^t has no requests: give CSV or JSON Lines with TIMESTAMP"),
        (AZURE, r"^t has no requests"),
        ("a,b\n1,2\n", r"^t, line 2: no trace has the keys a, b: TIMESTAMP, ContextTokens"),
        (AZURE + "1970-01-01 00:00:46,1,1\nyesterday,1,1\n", r"^t, line 3: .*yesterday"),
        (AZURE + "1970-01-01 00:00:46,1\n", r"^t, line 2: "),
        (AZURE + "1970-01-01 00:00:46,1,-1\n", r"^t, line 2: .*negative"),
        ('{"timestamp": 1}\n', r"^t, line 1: no trace has the keys timestamp: timestamp, input_length"),
        (FORMS["mooncake"][0] + '{"timestamp": 1, "input_length": 1}', r"^t, line 3: output_length is missing"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1}', r"^t, line 1: a time is finite"),
        ("{", r"^t, line 1: this is not JSON"),
        ('{"seconds": 0, "input_tokens": 1, "output_tokens": 1}\n[1]\n', r"^t, line 2: this is no object"),
    ],
)
def test_what_is_no_trace_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadTrace, match=message):
        list(requests(io.StringIO(text), "t"))


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 50))))
def test_requests_that_are_late_by_less_than_the_bound_come_in_order(given: list[tuple[float, float]]) -> None:
    """As in a log: each is written some time after it began, and lines are in the order of writing."""
    written = [TracedRequest(began, 1, 1) for began, _ in sorted(given, key=sum)]
    assert list(in_order(written, "t", late=51)) == sorted(written)


def test_a_request_that_is_too_late_is_refused() -> None:
    late = [TracedRequest(seconds, 1, 1) for seconds in (0.0, 100.0, 30.0, 200.0, 20.0)]
    with pytest.raises(BadTrace, match="more than 50 s too late: sort the file"):
        list(in_order(late, "t", late=50))
