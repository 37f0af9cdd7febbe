"""The options of a text: what is wrong with one, or with two together, and what of them is told of tokens."""

from typing import Any

import pytest

from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.text_options import TextSpec


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, None),
        ({"strategy": Strategy.THRESHOLD, "threshold": 0.3}, None),
        ({"strategy": Strategy.THRESHOLD}, "the strategy threshold needs a threshold, from 0 to less than 1"),
        ({"threshold": 0.3}, "a threshold is not possible with the strategy coupled"),
        ({"max_tokens": 0}, "max_tokens must be None or at least 1, got 0"),
        ({"logprobs": 1000}, "logprobs must be in [0, 20], got 1000"),
        ({"logit_bias": [3]}, "logit_bias must map token ids to numbers, got [3]"),
        ({"logit_bias": {"3": 1.0}}, "logit_bias must map token ids to numbers, got '3': 1.0"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias names -1, which is no token id: ids are 0 or greater"),
        ({"logit_bias": {3: 101.0}}, "logit_bias of token 3 must be in [-100, 100], got 101.0"),
    ],
)
def test_what_is_wrong_with_options_is_said(options: dict[str, Any], words: str | None) -> None:
    assert TextSpec(**options).complaint() == words


def test_what_is_told_of_tokens_does_not_change_them() -> None:
    spec = TextSpec(seed=3, temperature=0.5, explain=True, logprobs=0, max_tokens=9)
    assert spec.details_asked == (True, 0)
    assert spec.without_details == TextSpec(seed=3, temperature=0.5) and spec.without_details.details_asked == (
        False,
        None,
    )
