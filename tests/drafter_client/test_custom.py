"""A custom drafter that breaks its contract raises an error with its name, and its session is released."""

from collections.abc import Sequence
from typing import Any

import pytest

from drafter_client import Custom, Expansion, Options, Pair, Proposal
from drafter_client.errors import BadDrafter
from tests.drafter_client.support import Verifier

GOOD = Proposal(5, 0.5)


class Constant:
    """Returns the same for every call."""

    def __init__(self, returned: Any, width: Any = 1) -> None:
        self.returned, self.width = returned, width

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Any:
        return self.returned


def _run(verifier: Verifier, drafter: Any, **options: Any) -> None:
    with Pair(verifier.url, Custom(lambda *_: drafter, "my drafter"), branches=1) as pair:
        pair.generate("def f(x):", Options(max_tokens=900, lookup=False, **options)).read()


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "must return an Expansion"),
        ([], "must return an Expansion"),
        (Expansion([], 1), "a proposal for each of 1 tails"),
        (Expansion([GOOD, GOOD], 1), "a proposal for each of 1 tails"),
        (Expansion([GOOD], -1), "how many tokens it read, not -1"),
        (Expansion([GOOD], None), "how many tokens it read, not None"),  # type: ignore[arg-type]
        (Expansion([5], 1), "with a Proposal, not 5"),  # type: ignore[list-item]
        (Expansion([Proposal(-1, 0.5)], 1), "token ids from 0 to 257, not -1"),
        (Expansion([Proposal(258, 0.5)], 1), "token ids from 0 to 257, not 258"),
        (Expansion([Proposal(True, 0.5)], 1), "token ids from 0 to 257, not True"),
        (Expansion([Proposal(5, 0.5, 999)], 1), "token ids from 0 to 257, not 999"),
        (Expansion([Proposal(5, float("nan"))], 1), "give a confidence from 0 to 1, not nan"),
        (Expansion([Proposal(5, 1.5)], 1), "give a confidence from 0 to 1, not 1.5"),
        (Expansion([Proposal(5, 0.5, None, {6: 1.0})], 1), "draws 5 from {6: 1.0}, which does not contain it"),
    ],
)
def test_invalid_expansions_are_refused(verifier: Verifier, returned: Any, complaint: str, lockstep: bool) -> None:
    with pytest.raises(BadDrafter, match=f"^my drafter .*{complaint}"):
        _run(verifier, Constant(returned), lockstep=lockstep)
    assert verifier.sessions == 0


@pytest.mark.parametrize(
    "drafter", [None, 5, Constant(None, width=0), Constant(None, width="x"), Constant(None, width=1.5)]
)
def test_objects_that_are_no_drafter_are_refused(verifier: Verifier, drafter: Any) -> None:
    with pytest.raises(BadDrafter, match=r"^my drafter is no drafter: it needs a method expand, and a width of"):
        _run(verifier, drafter)


def test_valid_custom_drafter_is_accepted(verifier: Verifier) -> None:
    _run(verifier, Constant(Expansion([Proposal(5, 0, 6)], 1)))
