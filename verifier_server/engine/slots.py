"""Which session's KV cache lives in which row, and how a text that starts like another one gets its beginning."""

from collections import OrderedDict
from collections.abc import Iterable

from backends.base import Backend
from verifier_server.sessions import Session

SHARED_AT_LEAST = 16  # tokens by which a copy must be ahead of what the row holds already


class SlotPool:
    """Rows of one backend. Used by the engine's thread only."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free = list(reversed(range(backend.rows)))
        self._owners: OrderedDict[int, Session] = OrderedDict()  # least recently used first

    @property
    def free(self) -> int:
        """How many rows belong to nobody."""
        return len(self._free)

    def owners(self) -> Iterable[Session]:
        """Sessions that have a row, the least recently used first."""
        return self._owners.values()

    def give(self, session: Session) -> None:
        """Let `session`, which has none, have a row that is free."""
        session.row, session.held = self._free.pop(), 0
        self._owners[session.row] = session

    def take_over(self, owner: Session, session: Session) -> None:
        """Let `session`, which has no row, have that of `owner`, with what it holds of a beginning they share."""
        row = owner.row
        assert row is not None
        common = _common(owner.tokens, session.tokens, min(owner.held, len(session.tokens) - 1))
        if common < SHARED_AT_LEAST or not self._can_cut(row, common):
            self._backend.release(row)
            common = 0
        owner.row, owner.held = None, 0
        session.row, session.held = row, common
        self._owners[row] = session

    def drop(self, session: Session) -> None:
        """Take the row of `session` back; its tokens stay, the KV is recomputed when next needed."""
        if session.row is None:
            return
        row, session.row, session.held = session.row, None, 0
        del self._owners[row]
        self._backend.release(row)
        self._free.append(row)

    def use(self, session: Session) -> None:
        """Note that the row of `session` is part of a pass."""
        assert session.row is not None
        self._owners.move_to_end(session.row)

    def share(self, session: Session) -> None:
        """Copy the longest beginning that another row holds of the tokens of `session`, where that saves enough.

        Two texts that are read at the same time get ahead by turns: what they have in common is computed once.
        """
        if not self._backend.can_copy or session.row is None:
            return
        best, source = session.held + SHARED_AT_LEAST - 1, None
        for row, owner in self._owners.items():
            length = min(owner.held, len(session.tokens) - 1)  # a token is left to feed
            # The token behind the best so far is compared first: most owners differ there or before.
            if length > best and owner is not session and owner.tokens[best] == session.tokens[best]:
                common = _common(owner.tokens, session.tokens, length)
                if common > best and self._can_cut(row, common):
                    best, source = common, row
        if source is not None:
            self._backend.copy(source, session.row, best)
            session.held = best

    def check(self) -> Iterable[str]:
        """What does not add up, in words."""
        for row in range(self._backend.rows):
            owner, length = self._owners.get(row), self._backend.length(row)
            if (row in self._free) == (owner is not None) or self._free.count(row) > 1:
                yield f"row {row} is both free and owned, or neither"
            elif owner is None and length:
                yield f"row {row} is free and holds {length} tokens"
            elif owner is not None and owner.row != row:
                yield f"row {row} belongs to session {owner.id}, which has row {owner.row}"
            elif owner is not None and not owner.held <= min(length, len(owner.tokens)):
                yield (
                    f"session {owner.id} counts {owner.held} of its {len(owner.tokens)} tokens held, "
                    f"its row {row} holds {length}"
                )

    def _can_cut(self, row: int, length: int) -> bool:
        """Whether the engine can take back what the row holds beyond `length`, so that a copy can end there."""
        limit = self._backend.max_rollback
        return limit is None or self._backend.length(row) - length <= limit


def _common(left: list[int], right: list[int], length: int) -> int:
    """Length of the common beginning within the first `length` tokens, by comparing slices: no loop over tokens."""
    same, end = 0, length
    while same < end:
        middle = (same + end + 1) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            end = middle - 1
    return same
