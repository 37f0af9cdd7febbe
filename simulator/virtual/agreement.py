"""A law of agreement: the chance that the drafter's choice is the target's token, all tokens before it being known.

It is stated (the same everywhere, or by position in the draft), or taken from a profile: outcomes of a real run, by
kind of text.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Agreement(Protocol):
    """A law of agreement."""

    def chance(self, position: int, kind: str = "") -> float:
        """Chance, 0 to 1, of draft token `position` (the first is 0) in a text of `kind`, those before it accepted."""
        ...


@dataclass(frozen=True)
class ByPosition:
    """The stated law: one chance for each position in the draft; the last one holds for all behind it, too."""

    chances: Sequence[float]

    def __post_init__(self) -> None:
        """Raises ValueError unless there is a chance, and all are from 0 to 1."""
        if not self.chances or not all(0.0 <= each <= 1.0 for each in self.chances):
            raise ValueError(f"a law of agreement is one or more chances from 0 to 1, got {list(self.chances)}")

    def chance(self, position: int, kind: str = "") -> float:
        return self.chances[min(position, len(self.chances) - 1)]


def constant(chance: float) -> ByPosition:
    """The law that states the same chance everywhere. Raises ValueError unless it is from 0 to 1."""
    return ByPosition((chance,))


class Judged(NamedTuple):
    """A draft token that a target judged in a real run, all tokens before it in its draft accepted."""

    kind: str  # of the text
    position: int  # in its draft; the first is 0
    accepted: bool


@dataclass(frozen=True)
class Profile:
    """The law of a real run: a law by position for each kind of text."""

    kinds: Mapping[str, ByPosition]

    @classmethod
    def of(cls, judged: Iterable[Judged], least: int = 30) -> "Profile":
        """`least`: outcomes that a position must have; from the first with fewer on, they count together.

        Raises ValueError where there are no outcomes.
        """
        outcomes: dict[str, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
        for each in judged:
            outcomes[each.kind][each.position].append(each.accepted)
        if not outcomes:
            raise ValueError("a profile needs at least one judged draft token")
        return cls({kind: ByPosition(_shares(positions, least)) for kind, positions in outcomes.items()})

    def chance(self, position: int, kind: str = "") -> float:
        """Raises ValueError for a kind that the run had no texts of."""
        if kind not in self.kinds:
            raise ValueError(
                f"the profile has no texts of kind {kind!r}: choose one of {', '.join(sorted(self.kinds))}"
            )
        return self.kinds[kind].chance(position)


def _shares(outcomes: Mapping[int, Sequence[bool]], least: int) -> list[float]:
    """Share of accepted tokens by position; the last is that of all positions from the first thin one on."""
    full = 0
    while len(outcomes.get(full, ())) >= least:
        full += 1
    shares = [sum(outcomes[position]) / len(outcomes[position]) for position in range(full)]
    behind = [accepted for position, each in outcomes.items() if position >= full for accepted in each]
    return [*shares, sum(behind) / len(behind)] if behind else shares
