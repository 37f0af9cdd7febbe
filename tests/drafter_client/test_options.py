"""The options of a text: invalid values are refused by name, and valid ones reach the verifier unchanged."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client import DrafterError, Mode, Options, Strategy
from drafter_client.errors import BadOption
from specpair.protocol.messages import PrefillRequest
from specpair.protocol.response_fields import SamplingReport

EVERY_MODE = [Mode.REMOTE, Mode.FUSED, Mode.TARGET]  # as a pair lists them


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": "40"}, "max_tokens must be of type int, got '40'"),
        ({"temperature": float("nan")}, r"temperature must be in \[0, 100\], got nan"),
        ({"top_k": 2**53 + 1}, "got 9007199254740993"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"logit_bias": [(1, 2.0)]}, r"logit_bias must map token ids to numbers, got \[\(1, 2.0\)\]"),
        ({"logit_bias": {1: 101}}, r"logit_bias of token 1 must be in \[-100, 100\], got 101"),
        ({"logit_bias": {-1: 5}}, "logit_bias names -1, which is no token id"),
        ({"logprobs": 21}, r"logprobs must be in \[0, 20\], got 21"),
        ({"seed": 2**53}, r"seed must be in \[0, 2\*\*53\), got 9007199254740992"),
        ({"draft_n": -1}, "draft_n must be None or at least 0, got -1"),
        ({"strategy": "hopeful"}, "strategy must be one of coupled, deterministic.*, got 'hopeful'"),
        ({"mode": "alone"}, "mode must be one of remote, fused, target, auto, got 'alone'"),
    ],
    ids=str,
)
def test_invalid_options_are_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint) as refused:
        Options(**options)
    assert isinstance(refused.value, DrafterError)


@given(
    max_tokens=st.integers(1, 2**31 - 1),
    temperature=st.floats(0.0, 100.0),
    top_k=st.integers(0, 2**31 - 1),
    top_p=st.floats(0.0, 1.0, exclude_min=True),
    seed=st.none() | st.integers(0, 2**53 - 1),
    min_p=st.floats(0.0, 1.0),
    presence_penalty=st.floats(-2.0, 2.0),
    frequency_penalty=st.floats(-2.0, 2.0),
    repetition_penalty=st.floats(0.01, 100.0),
    min_tokens=st.integers(0, 2**53),
    logit_bias=st.dictionaries(st.integers(0, 10**9 - 1), st.floats(-100.0, 100.0) | st.integers(-100, 100)),
    logprobs=st.none() | st.integers(0, 20),
    strategy=st.sampled_from([Strategy.COUPLED, Strategy.DETERMINISTIC]),
)
def test_verifier_accepts_all_valid_options(strategy: Strategy, **fields: Any) -> None:
    options = Options(strategy=strategy, **fields).settled()
    prefill = PrefillRequest.model_validate({"prompt": "a", **options.request()})
    assert (prefill.spec.max_tokens, prefill.spec.temperature, prefill.spec.top_k) == (
        fields["max_tokens"],
        options.temperature,
        options.top_k,
    )
    assert (prefill.spec.seed, prefill.spec.top_p) == (options.seed, options.top_p)
    assert prefill.strategy == strategy
    assert prefill.spec.logprobs == options.logprobs
    assert options.seed is not None and prefill.spec.sampling == options.sampling
    described = SamplingReport.of(options).settings()
    assert options.described() == described == json.loads(json.dumps(described))
    assert options.settings() == json.loads(json.dumps(options.settings()))


def test_options_of_later_versions_are_named_only_where_they_are_given() -> None:
    """So that the results and traces of an earlier version are still those of the same options."""
    later = {
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "min_tokens",
        "logit_bias",
        "logprobs",
    }
    assert not later & (Options().settings() | Options().request()).keys()
    given = Options(min_p=0.1, presence_penalty=1, logit_bias={15: -100, 3: 1.5}, logprobs=0)
    found = {"min_p": 0.1, "presence_penalty": 1, "logit_bias": {"3": 1.5, "15": -100.0}, "logprobs": 0}
    assert {name: value for name, value in given.settings().items() if name in later} == found
    assert {name: value for name, value in given.request().items() if name in later} == found


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"strategy": Strategy.PROBABILISTIC}, "the strategy probabilistic"),
        ({"strategy": Strategy.THRESHOLD, "threshold": 0.3}, "the strategy threshold"),
        ({"lockstep": True}, "lockstep"),
        ({"draft_n": 0}, "a fixed draft length"),
    ],
    ids=str,
)
def test_auto_keeps_to_one_mode_where_the_options_say_how_to_draft(more: dict[str, Any], why: str) -> None:
    options = Options(**more)
    assert options.one_mode == why
    assert options.settled_mode(EVERY_MODE) is Mode.REMOTE
    assert options.settled_mode(EVERY_MODE[1:]) is Mode.FUSED, "where this machine drafts nothing"
    for mode in EVERY_MODE:
        assert replace(options, mode=mode).settled_mode(EVERY_MODE) is mode, "a mode that was asked for stays"
