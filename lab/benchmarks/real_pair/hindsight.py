"""What is known of a recorded text when it is over: by how much static policies and bounds are better informed.

What the text's own lookup would have proposed at a place depends on how much of the text was known by then. A place
counts as looked up if the right token is found with any part of the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.benchmarks.real_pair.draft_choices import KEPT
from lab.benchmarks.real_pair.pair import Chooses
from lab.benchmarks.real_pair.recorded import RecordedText
from lab.simulator.known_outputs.draft_bound import Place
from lab.simulator.known_outputs.static_policies import Trace
from specpair.speculation.drafts.text_lookup import TextLookup

_LOOKED_UP = 3  # different tokens that are looked up at a place of a tree


@dataclass(frozen=True)
class Hindsight:
    """One text. `ranks`: which of the draft model's choices each of its tokens is, 0 the first; `KEPT`: none.

    `chain`, `tree`: of the places behind the first token, what drafts could hold there.
    """

    ranks: list[int]
    chain: list[Place]
    tree: list[Place]

    @classmethod
    def of(cls, text: RecordedText, choices: Chooses) -> "Hindsight":
        tokens, first = text.written.tokens, len(text.prompt)
        ids = (choices.after(first + at, ()).ids for at in range(len(tokens)))
        ranks = [each.index(token) if token in each else KEPT for each, token in zip(ids, tokens, strict=True)]
        looked_up = [_looked_up(text.prompt, tokens, most) for most in (1, _LOOKED_UP)]
        chain, tree = [], []
        for rank, one, any_of in zip(ranks[1:], *looked_up, strict=True):
            known = rank < KEPT or any_of
            chain.append(Place(not rank or one, known, one))
            tree.append(Place(known, known, any_of))
        return cls(ranks, chain, tree)

    @property
    def trace(self) -> Trace:
        return Trace([rank == 0 for rank in self.ranks])


def _looked_up(prompt: Sequence[int], tokens: Sequence[int], most: int) -> list[bool]:
    """For each token behind the first, whether it is among the `most` that are looked up behind all before it."""
    lookup, found = TextLookup(), [False] * len(tokens)
    lookup.extend(prompt)
    for known, token in enumerate(tokens, 1):
        lookup.extend([token])
        for at in range(known, len(tokens)):
            tail = tokens[known:at]
            found[at] = found[at] or any(each == tokens[at] for each, _ in lookup.predict(tail, most=most))
    return found[1:]
