"""A draft, the drafter's proposal for the continuation of a text, and the shape of its tree. Both ends use it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, islice
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.acceptance.draft_probs import Weights


class DraftSource(Enum):
    """The source of a draft token."""

    MODEL = "model"  # the drafter predicted it
    HEAD = "head"  # the target's own head predicted it
    LOOKUP = "lookup"  # it was looked up in the text, or in an earlier one
    PREDICTION = "prediction"  # it was looked up in the client's prediction of the text
    CORPUS = "corpus"  # it was looked up in the user's own files
    GRAMMAR = "grammar"  # the grammar allows no other one

    @property
    def predicted(self) -> bool:
        return self in (DraftSource.MODEL, DraftSource.HEAD)

    @property
    def looked_up(self) -> bool:
        return self in (DraftSource.LOOKUP, DraftSource.PREDICTION, DraftSource.CORPUS)


class DraftToken(NamedTuple):
    """A token of a draft.

    `confidence`: the drafter's probability of it, 0 to 1.
    `probs`: the distribution that it was drawn from, where that is sent; None: it was chosen.
    `parent`: how many tokens before it in the draft its parent stands, the token that it follows. In a chain that is
        the one before it; the first token of a draft follows the committed text.
    `chance`: the estimated chance that it is accepted if its parent is; None: not known, or it is to be judged in any
        case.
    """

    token: int
    confidence: float = 1.0
    source: DraftSource = DraftSource.MODEL
    probs: Weights | None = None
    parent: int = 1
    chance: float | None = None


class TreeLimits(NamedTuple):
    """A verifier's limits for a draft tree. None: no limit."""

    leaves: int | None = None
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft tokens behind the first `position` tokens of the text. Each follows its parent."""

    position: int
    tokens: tuple[DraftToken, ...] = ()

    @classmethod
    def chain(cls, position: int, ids: Sequence[int], probs: Sequence[Weights] = ()) -> Self:
        """A draft of these token ids, each of which follows the one before. `probs`: one for each, or empty."""
        return cls(position, chain(ids, probs))

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[DraftToken]:
        return iter(self.tokens)

    @property
    def ids(self) -> list[int]:
        return [each.token for each in self.tokens]

    @property
    def left(self) -> list[int]:
        """Item k: the number of draft tokens that follow the first k of the likeliest chain."""
        shared: list[int] = []  # for each token, how many of that chain are on its way
        chain = [-1]  # indices, behind that of the root
        for index, each in enumerate(self.tokens):
            parent = index - each.parent
            if parent == chain[-1]:
                chain.append(index)
            shared.append((shared[parent] if parent >= 0 else 0) + (chain[-1] == index))
        counts = Counter(shared)
        below = list(accumulate(counts[kept] for kept in range(len(chain) - 1, -1, -1)))[::-1]
        return [count - (kept > 0) for kept, count in enumerate(below)]

    def confirmed(self, committed: Sequence[int]) -> bool:
        """Whether the likeliest chain was accepted. `committed`: the text from `position` on."""
        chain = self.likeliest().ids
        return list(committed[: len(chain)]) == chain

    def before(self, committed: Sequence[int], judged: int) -> int:
        """The number of draft tokens that were committed before a pass that judged `judged` of the remaining ones.

        `committed`: the text from `position` on.
        """
        accepted = self.accepted(committed)
        if self.is_chain:
            return min(accepted, max(0, len(self.tokens) - judged))
        for count in range(accepted):
            rest = self.fresh(committed[:count])
            if rest is None or len(rest) <= judged:
                return count
        return accepted

    @property
    def is_chain(self) -> bool:
        """Whether each token follows the one before it."""
        return all(each.parent == 1 for each in self.tokens)

    @property
    def parents(self) -> list[int]:
        return [each.parent for each in self.tokens]

    def with_parents(self, parents: Sequence[int]) -> Self:
        """A tree of the same tokens. `parents`: one for each."""
        tokens = zip(self.tokens, parents, strict=True)
        return type(self)(self.position, tuple(each._replace(parent=parent) for each, parent in tokens))

    def first(self, most: int | None) -> Self:
        """The draft without the tokens behind the first `most`; None: with all."""
        return (
            self if most is None or most >= len(self.tokens) else type(self)(self.position, self.tokens[: max(0, most)])
        )

    def within(self, depth: int) -> Self:
        """The draft without the tokens deeper than `depth` in the tree."""
        if self.is_chain:
            return self.first(depth)
        return self._behind(-1, self.position, [at for at, each in enumerate(depths(self.parents)) if each <= depth])

    def with_leaves(self, most: int | None) -> Self:
        """As many of the first tokens as have at most `most` leaves among them; None: all."""
        followed, leaves = {-1}, 0
        for index, each in enumerate(self.tokens):
            parent = index - each.parent
            leaves += parent in followed  # else it stands in place of its parent, which was a leaf
            followed.add(parent)
            if most is not None and leaves > most:
                return self.first(index)
        return self

    def cut(self, limits: TreeLimits) -> Self:
        """The part of the draft that a verifier with these limits judges. A chain is judged as a whole."""
        return self if self.is_chain else self.with_leaves(limits.leaves).first(limits.nodes)

    def likeliest(self) -> Self:
        """The likeliest chain of a tree: the first child of each token."""
        if self.is_chain:
            return self
        path = [-1]
        for index, each in enumerate(self.tokens):
            if index - each.parent == path[-1]:
                path.append(index)
        return self._behind(-1, self.position, path[1:])

    def accepted(self, committed: Sequence[int]) -> int:
        """How many draft tokens equal committed ones. `committed`: the text from `position` on."""
        return len(self.path(committed))

    def fresh(self, committed: Sequence[int]) -> Self | None:
        """The part beyond `committed`, the text from `position` on; None if the text took another branch.

        Also None where the text goes beyond the draft: then it holds the whole answer to the draft.
        """
        if not committed:
            return self
        if self.is_chain:
            rest = rest_of_chain(self.ids, committed)
            return None if rest is None else type(self)(self.position + len(committed), self.tokens[len(committed) :])
        path = self.path(committed)
        if len(path) < len(committed):
            return None
        at = path[-1]
        return self._behind(at, self.position + len(committed), range(at + 1, len(self.tokens)))

    def contains(self, other: Self) -> bool:
        """Whether each token of `other`, a draft at the same position, is in this one, behind the same tokens."""
        found = {-1: -1}  # indices in this draft, by index in `other`
        for index, each in enumerate(other.tokens):
            child = self._child(found[index - each.parent], each.token)
            if child is None:
                return False
            found[index] = child
        return True

    def path(self, committed: Sequence[int]) -> list[int]:
        """Indices of the draft tokens that equal the first `committed` ones, the text from `position` on."""
        path = [-1]
        for token in committed:
            child = self._child(path[-1], token)
            if child is None:
                break
            path.append(child)
        return path[1:]

    def _behind(self, root: int, position: int, indices: Iterable[int]) -> Self:
        """A draft at `position` of the tokens at `indices` that descend, by those only, from the one at `root` (-1: the
        text)."""
        rest: list[DraftToken] = []
        kept = {root: -1}  # indices in the rest, by index in this draft
        for index in indices:
            parent = kept.get(index - self.tokens[index].parent)
            if parent is not None:
                kept[index] = len(rest)
                rest.append(self.tokens[index]._replace(parent=len(rest) - parent))
        return type(self)(position, tuple(rest))

    def _child(self, parent: int, token: int) -> int | None:
        """Index of the draft token with this id that follows the one at index `parent`."""
        behind = islice(enumerate(self.tokens), parent + 1, None)
        return next((at for at, each in behind if each.token == token and at - each.parent == parent), None)


NO_DRAFT = Draft(0)  # at whatever position


def rest_of_chain(ids: Sequence[int], committed: Sequence[int]) -> list[int] | None:
    """The part of a chain of draft tokens beyond the `committed` tokens, the text from the draft's position on.

    None: the text answers the draft, since it took another way, or goes beyond the draft.
    """
    count = len(committed)
    return list(ids[count:]) if list(ids[:count]) == list(committed) else None


def chain(ids: Sequence[int], probs: Sequence[Weights] = ()) -> tuple[DraftToken, ...]:
    """Draft tokens in a chain. `probs`: the distribution that each was drawn from, or empty."""
    if probs:
        return tuple(DraftToken(token, probs=each) for token, each in zip(ids, probs, strict=True))
    return tuple(map(DraftToken, ids))


def children(drafts: Sequence[DraftToken]) -> list[list[int]]:
    """For the committed text, and then for each draft token: the indices of the draft tokens that follow it."""
    following: list[list[int]] = [[] for _ in range(len(drafts) + 1)]
    for index, each in enumerate(drafts):
        following[index + 1 - each.parent].append(index)
    return following


# The shape of a tree of tokens, as a draft and an entry have them: for each node, how many nodes before it its parent
# stands. A distance that leads out of the tree, to the last token before it, makes a root.


def depths(parents: Sequence[int]) -> list[int]:
    """The depth of each node: the number of nodes on its path, itself included."""
    found: list[int] = []
    for at, back in enumerate(parents):
        found.append(1 if back > at else found[at - back] + 1)
    return found


def leaves(parents: Sequence[int]) -> list[int]:
    """The indices of the nodes that no other follows."""
    followed = {at - back for at, back in enumerate(parents)}
    return [at for at in range(len(parents)) if at not in followed]


def paths(parents: Sequence[int]) -> NDArray[np.bool_]:
    """The nodes on the path to each, itself included: row i, of shape (nodes,), is that of node i."""
    found = np.eye(len(parents), dtype=np.bool_)
    for at, back in enumerate(parents):
        if back <= at:
            found[at] |= found[at - back]
    return found
