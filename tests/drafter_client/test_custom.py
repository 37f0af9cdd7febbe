"""A program's own drafter that breaks its contract is told so, by its name, and nothing is left of its text."""

from collections.abc import Sequence
from typing import Any

import pytest

from drafter_client import Custom, Expansion, Options, Pair, Prediction
from drafter_client.errors import BadDrafter
from tests.drafter_client.support import Verifier

GOOD = Prediction(5, 0.5)


class Saying:
    """Says the same whatever it is asked."""

    def __init__(self, said: Any, width: Any = 1) -> None:
        self.said, self.width = said, width

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Any:
        return self.said


def _run(verifier: Verifier, drafter: Any, **options: Any) -> None:
    with Pair(verifier.url, Custom(lambda *_: drafter, "my drafter"), branches=1) as pair:
        pair.generate("def f(x):", Options(max_tokens=900, lookup=False, **options)).read()


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (None, "must return an Expansion"),
        ([], "must return an Expansion"),
        (Expansion([], 1), "a prediction for each of 1 tails"),
        (Expansion([GOOD, GOOD], 1), "a prediction for each of 1 tails"),
        (Expansion([GOOD], -1), "how many tokens it read, not -1"),
        (Expansion([GOOD], None), "how many tokens it read, not None"),  # type: ignore[arg-type]
        (Expansion([5], 1), "with a Prediction, not 5"),  # type: ignore[list-item]
        (Expansion([Prediction(-1, 0.5)], 1), "token ids from 0 to 257, not -1"),
        (Expansion([Prediction(258, 0.5)], 1), "token ids from 0 to 257, not 258"),
        (Expansion([Prediction(True, 0.5)], 1), "token ids from 0 to 257, not True"),
        (Expansion([Prediction(5, 0.5, 999)], 1), "token ids from 0 to 257, not 999"),
        (Expansion([Prediction(5, float("nan"))], 1), "sure of a token from 0 to 1, not nan"),
        (Expansion([Prediction(5, 1.5)], 1), "sure of a token from 0 to 1, not 1.5"),
        (Expansion([Prediction(5, 0.5, None, {6: 1.0})], 1), "draws 5 from {6: 1.0}, where it is not"),
    ],
)
def test_what_no_drafter_says(verifier: Verifier, said: Any, complaint: str, lockstep: bool) -> None:
    with pytest.raises(BadDrafter, match=f"^my drafter .*{complaint}"):
        _run(verifier, Saying(said), lockstep=lockstep)
    assert verifier.sessions == 0


@pytest.mark.parametrize("drafter", [None, 5, Saying(None, width=0), Saying(None, width="x"), Saying(None, width=1.5)])
def test_what_is_no_drafter(verifier: Verifier, drafter: Any) -> None:
    with pytest.raises(BadDrafter, match=r"^my drafter is no drafter: it needs a method expand, and a width of"):
        _run(verifier, drafter)


def test_one_that_keeps_to_it_drafts(verifier: Verifier) -> None:
    _run(verifier, Saying(Expansion([Prediction(5, 0, 6)], 1)))
