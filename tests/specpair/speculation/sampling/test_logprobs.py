"""Log probabilities equal a log softmax in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.sampling.distribution import TokenLogprobs, token_logprobs
from specpair.speculation.sampling.sampling import Logits
from specpair.speculation.sampling.top_logits import top_logits_of
from tests.specpair.speculation.rows import rows


@given(rows, st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_logprobs_equal_a_log_softmax(row: Logits, top: int, seed: int) -> None:
    finite = np.flatnonzero(row > -np.inf)
    token = int(finite[seed % len(finite)])
    found = token_logprobs(row, token, top)
    exact = row.astype(np.float64) - row.max()
    exact -= np.log(np.exp(exact).sum())
    order = [each for each in np.lexsort((np.arange(len(row)), -exact)).tolist() if np.isfinite(exact[each])]
    assert found.token == token and found.logprob == pytest.approx(exact[token], rel=1e-6, abs=1e-5)
    assert [each for each, _ in found.top] == order[:top]
    assert [value for _, value in found.top] == pytest.approx([exact[each] for each in order[:top]], rel=1e-6, abs=1e-5)


def test_top_logits_are_read_as_whole_rows() -> None:
    row = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    assert token_logprobs(top_logits_of(row, 2, 0.7), 5, 4) == token_logprobs(row, 5, 4)


def test_a_row_without_a_finite_maximum_is_refused() -> None:
    with pytest.raises(ValueError, match="without a finite maximum"):
        token_logprobs(np.full(3, np.nan, np.float32), 0, 1)


def test_body_is_the_json_object_of_replies() -> None:
    assert TokenLogprobs(5, -0.5, [(5, -0.5)]).body() == {"token": 5, "logprob": -0.5, "top": [(5, -0.5)]}
