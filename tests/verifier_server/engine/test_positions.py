"""Retried, duplicate, overlapping, stale and empty drafts leave the text of plain decoding unchanged."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.protocol.errors import PositionBeyondCommitted, PositionInsidePrompt
from specpair.speculation.acceptance.judge import Rule, judge
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.examples import examples
from verifier_server.engine.requests import check_position

PROMPT = (1, 2, 3)
END = 6


@cache
def logits_after(context: tuple[int, ...]) -> Logits:
    """Logits of a toy model of 7 ids, which depend on the last three tokens."""
    row = np.random.default_rng([3, *context[-3:]]).standard_normal(7).astype(np.float32)
    row[END] -= 1.0
    return row


class Model:
    """A verifier reduced to the position rule: the committed tokens, and how a draft extends them."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.tokens = list(PROMPT)
        self.judged = 0

    @property
    def finished(self) -> bool:
        return self.tokens[-1] == END

    def verify(self, position: int, drafts: list[int]) -> list[int]:
        """The committed tokens from `position` on."""
        fresh = None if self.finished else Draft.chain(position, drafts).fresh(self.tokens[position:])
        if fresh is not None:
            rows = [logits_after(tuple(self.tokens + fresh.ids[:at])) for at in range(len(fresh) + 1)]
            self.tokens += [
                ruling.token
                for ruling in judge(fresh.tokens, rows, Rule(Strategy.COUPLED, self.sampling), len(self.tokens), {END})
            ]
            self.judged += len(fresh)
        return self.tokens[position:]


def plain_decoding(sampling: Sampling, length: int) -> list[int]:
    model = Model(sampling)
    while len(model.tokens) < length and not model.finished:
        model.verify(len(model.tokens), [])
    return model.tokens


# How far before the committed end the draft starts (a stale or repeated one starts far back), how many of its tokens
# are right, and which tokens follow them.
drafts_sent = st.tuples(st.integers(0, 12), st.integers(0, 8), st.lists(st.integers(0, 6), max_size=5))


@examples(100)
@given(st.integers(0, 999), st.sampled_from([0.0, 1.0]), st.lists(drafts_sent, max_size=30))
def test_any_drafts_leave_the_text_of_plain_decoding(
    seed: int, temperature: float, sent: list[tuple[int, int, list[int]]]
) -> None:
    sampling = Sampling(seed, temperature)
    text = plain_decoding(sampling, len(PROMPT) + 30 * 14)
    model = Model(sampling)
    for back, right, wrong in sent:
        before = list(model.tokens)
        position = max(len(PROMPT), len(before) - back)
        drafts = text[position : position + right] + wrong
        reply = model.verify(position, drafts)
        again = model.verify(position, drafts)
        assert model.tokens[: len(before)] == before, "a committed token never changes"
        assert model.tokens == text[: len(model.tokens)]
        assert reply == text[position : position + len(reply)]
        assert reply or model.finished, "a response holds at least one token"
        assert again[: len(reply)] == reply, "a retry gets the same tokens, and perhaps more"


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (2, "position 2 lies inside the prompt of 3 tokens"),
        (3, None),
        (5, None),
        (6, "position 6 lies beyond the 5 committed tokens"),
    ],
)
def test_generated_positions_alone_are_accepted(position: int, said: str | None) -> None:
    if said is None:
        check_position(5, 3, position)
    else:
        with pytest.raises(PositionInsidePrompt if position < 3 else PositionBeyondCommitted, match=said) as caught:
            check_position(5, 3, position)
        assert caught.value.details == {"total_tokens": 5}
