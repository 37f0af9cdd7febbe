"""What an engine is asked: the entries of a pass, and of a step of the model's own head, with their checks."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from specpair.engines.errors import BadEntry
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.draft import leaves


class Entry(NamedTuple):
    """Work for one slot in a pass: feed `tokens` from position `start` on, and return the logits that follow each of
    `tokens[logits_from:]`; none where `logits_from` is `len(tokens)`.

    `parents`: for each of the last tokens, how many tokens before it the one stands that it follows; empty: each
        follows the one before it. A token with a parent attends to those on its path only, at the position behind its
        parent's. After the pass the slot holds the tokens before these, and those that `keep` names.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    logits_from: int
    parents: Sequence[int] = ()

    @property
    def end(self) -> int:
        """The position behind the last of the tokens, where they are a chain."""
        return self.start + len(self.tokens)

    @property
    def trunk(self) -> int:
        """How many of the tokens, from the first on, follow one another and stay in the slot."""
        return len(self.tokens) - len(self.parents)


class HeadEntry(NamedTuple):
    """A continuation that the model's head is asked about: `tail`, whose first token is at position `start`.

    The slot holds what is before `start`. The head forgets what it has read behind, so the next pass starts there too,
    or before.
    """

    slot: int
    start: int
    tail: Sequence[int]


class Limits(Protocol):
    """What an engine takes, as `Backend` says it."""

    name: str
    vocabulary: Vocabulary
    context_length: int
    max_batch_tokens: int
    max_rollback: int | None
    takes_trees: bool
    max_leaves: int | None
    max_nodes: int | None
    head_depth: int

    def length(self, slot: int) -> int: ...


def check_batch(backend: Limits, batch: Sequence[Entry]) -> None:
    """Raise BadEntry unless `backend` can run a pass over these entries."""
    if not batch:
        raise BadEntry("the batch is empty")
    seen: set[int] = set()
    total = 0
    for slot, start, tokens, logits_from, parents in batch:
        held = backend.length(slot)
        if slot in seen:
            raise BadEntry(f"slot {slot} occurs twice in one batch")
        seen.add(slot)
        count = len(tokens)
        total += count
        if not count:
            raise BadEntry(f"slot {slot}: no tokens")
        if not 0 <= start <= held:
            raise BadEntry(f"slot {slot}: start {start} leaves a gap, the slot holds {held} tokens")
        if backend.max_rollback is not None and 0 < start < held - backend.max_rollback:
            raise BadEntry(f"slot {slot}: start {start} rolls back more than {backend.max_rollback} of {held} tokens")
        if start + count > backend.context_length:
            raise BadEntry(f"slot {slot}: {start + count} tokens exceed the context of {backend.context_length}")
        if not 0 <= logits_from <= count:
            raise BadEntry(f"slot {slot}: logits_from {logits_from} is outside of its {count} tokens")
        if parents:
            _check_tree(backend, slot, count, parents)
        _check_ids(backend, slot, tokens)
    if total > backend.max_batch_tokens:
        raise BadEntry(f"{total} tokens exceed the batch limit of {backend.max_batch_tokens}")


def _check_ids(backend: Limits, slot: int, tokens: Sequence[int]) -> None:
    if min(tokens) < 0 or max(tokens) >= backend.vocabulary.size:
        raise BadEntry(f"slot {slot}: a token id is outside of the vocabulary of {backend.vocabulary.size}")


def _check_tree(backend: Limits, slot: int, count: int, parents: Sequence[int]) -> None:
    """`count`: tokens of the entry."""
    if not backend.takes_trees:
        raise BadEntry(f"slot {slot}: {backend.name} takes no trees: each token must follow the one before it")
    if not (len(parents) < count and all(1 <= each <= at + 1 for at, each in enumerate(parents))):
        raise BadEntry(
            f"slot {slot}: parents are {list(parents)}: each must be the distance to a token of the {count} "
            "before it that is one of the tree's or the last before it"
        )
    found = (("nodes", len(parents), backend.max_nodes), ("leaves", len(leaves(parents)), backend.max_leaves))
    for name, number, most in found:
        if most is not None and number > most:
            raise BadEntry(f"slot {slot}: a tree of {number} {name}: {backend.name} takes {most} here at most")


def check_head_batch(backend: Limits, batch: Sequence[HeadEntry]) -> None:
    """Raise BadEntry unless the head of `backend` can draft behind these tails."""
    for slot, start, tail in batch:
        if not 0 <= start <= backend.length(slot):
            raise BadEntry(f"slot {slot}: the head cannot draft at {start} of {backend.length(slot)} tokens")
        if not 1 <= len(tail) <= backend.head_depth:
            raise BadEntry(f"slot {slot}: the head drafts behind 1 to {backend.head_depth} tokens, not {len(tail)}")
        _check_ids(backend, slot, tail)
    if len({entry.slot for entry in batch}) < len(batch):
        raise BadEntry("two tails of the head are of the same slot")
