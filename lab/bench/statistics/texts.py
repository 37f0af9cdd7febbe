"""Whether equal requests got equal texts from two sides, and where the first of them differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.records import MeasuredRequest

_SHOWN = 24  # characters of each text, from where they differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two texts of the same prompt and seed that differ.

    `character`: how many characters they begin with in common. `one`, `other`: how the text of the side and that of the
    baseline go on from there, the first few characters; empty: the text ends there. None: the run keeps no texts.
    """

    prompt: str
    repetition: int
    seed: int | None
    character: int | None = None
    one: str | None = None
    other: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """How many requests of the same prompt and seed got the same text from both sides.

    `differing`: prompts of the others, by name, without repetition.
    `first`: the first pair that differs, by repetition and request; None: all are equal.
    """

    case: str
    side: str
    baseline: str
    pairs: int
    equal: int
    differing: tuple[str, ...]
    first: Difference | None = None

    @property
    def sentence(self) -> str:
        """The same as a sentence."""
        said = f"{self.equal} of {self.pairs} texts of {self.side} equal those of {self.baseline}, by prompt and seed"
        if self.first is None:
            return said
        said = f"{said}; the first that differs: prompt {self.first.prompt}, seed {self.first.seed}"
        if self.first.character is None:
            return f"{said} (the run keeps no texts)"
        one, other = (repr(text) if text else "its end" for text in (self.first.one, self.first.other))
        return f"{said}, after {self.first.character} characters {one} in place of {other}"


def equality(
    case: str, side: str, baseline: str, ones: Sequence[MeasuredRequest], others: Sequence[MeasuredRequest]
) -> Equality | None:
    """Compare texts by pairs of requests that did not fail. None: there is no pair with texts."""
    theirs = {each.pairing: each for each in others if each.text_hash is not None and each.failure is None}
    pairs = [
        (each, theirs[each.pairing])
        for each in sorted(ones, key=lambda each: each.pairing)
        if each.text_hash is not None and each.failure is None and each.pairing in theirs
    ]
    if not pairs:
        return None
    differing = [(one, other) for one, other in pairs if one.text_hash != other.text_hash]
    return Equality(
        case=case,
        side=side,
        baseline=baseline,
        pairs=len(pairs),
        equal=len(pairs) - len(differing),
        differing=tuple(sorted({one.prompt for one, _ in differing})),
        first=_difference(*differing[0]) if differing else None,
    )


def _difference(one: MeasuredRequest, other: MeasuredRequest) -> Difference:
    if one.text is None or other.text is None:
        return Difference(prompt=one.prompt, repetition=one.repetition, seed=one.seed)
    pairs = enumerate(zip(one.text, other.text, strict=False))
    at = next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one.text), len(other.text)))
    return Difference(
        prompt=one.prompt,
        repetition=one.repetition,
        seed=one.seed,
        character=at,
        one=one.text[at : at + _SHOWN],
        other=other.text[at : at + _SHOWN],
    )
