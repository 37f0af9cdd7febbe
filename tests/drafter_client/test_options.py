"""The options of a text: invalid values are refused by name, and valid ones reach the verifier unchanged."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client import DrafterError, Mode, Options, Strategy
from drafter_client.errors import BadOption
from speculation.protocol.messages import PrefillRequest


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": "40"}, "max_tokens must be of type int, got '40'"),
        ({"max_tokens": 1.5}, "max_tokens must be of type int, got 1.5"),
        ({"max_tokens": True}, "max_tokens must be of type int, got True"),
        ({"temperature": -0.1}, r"temperature must be in \[0, 100\], got -0.1"),
        ({"temperature": float("nan")}, r"temperature must be in \[0, 100\], got nan"),
        ({"temperature": None}, "temperature must be of type float or int, got None"),
        ({"top_k": -1}, r"top_k must be 0 \(off\) or positive, got -1"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*53\), got -1"),
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


def test_modes_and_strategies_may_be_plain_strings() -> None:
    options = Options(mode="target", strategy="deterministic")  # type: ignore[arg-type]
    assert options.mode is Mode.TARGET and options.strategy is Strategy.DETERMINISTIC
    assert options == Options(mode=Mode.TARGET, strategy=Strategy.DETERMINISTIC)


def test_seed_is_random_if_none_was_given() -> None:
    assert Options(seed=3).settled() == Options(seed=3)
    drawn = {Options().settled().seed for _ in range(20)}
    assert len(drawn) == 20 and all(seed is not None and 0 <= seed < 2**53 for seed in drawn)


@given(
    max_tokens=st.integers(1, 2**31 - 1),
    temperature=st.floats(0.0, 100.0),
    top_k=st.integers(0, 2**31 - 1),
    top_p=st.floats(0.0, 1.0, exclude_min=True),
    seed=st.none() | st.integers(0, 2**53 - 1),
    strategy=st.sampled_from([Strategy.COUPLED, Strategy.DETERMINISTIC]),
)
def test_verifier_accepts_all_valid_options(strategy: Strategy, **fields: Any) -> None:
    options = Options(strategy=strategy, **fields).settled()
    prefill = PrefillRequest.model_validate({"prompt": "a", **options.request()})
    assert (prefill.max_tokens, prefill.temperature, prefill.top_k) == (
        fields["max_tokens"],
        options.temperature,
        options.top_k,
    )
    assert (prefill.seed, prefill.top_p) == (options.seed, options.top_p)
    assert prefill.strategy == strategy
    assert options.sampling.seed == options.seed


def test_settings_are_described_as_in_replies() -> None:
    settings = {"seed": 3, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "strategy": "coupled", "noise": "gumbel-1"}
    assert Options(seed=3).described() == settings
    lossy = Options(seed=3, strategy=Strategy.THRESHOLD, threshold=0.2)
    assert lossy.described() == settings | {"strategy": "threshold", "threshold": 0.2}
