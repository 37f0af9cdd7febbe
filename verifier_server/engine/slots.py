"""The pool of slots: which session has which slot, which one is evicted for another, how sessions share a prefix."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from backends.base import Backend
from verifier_server.sessions import Session

SHARED_AT_LEAST = 16  # tokens by which a shared prefix must be longer than those the slot already holds


class SlotPool:
    """The slots of one backend. Used by the engine's thread only."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free = list(reversed(range(backend.slots)))
        self._owners: OrderedDict[int, Session] = OrderedDict()  # least recently used first

    @property
    def free(self) -> int:
        """How many slots belong to no session."""
        return len(self._free)

    def owners(self) -> Iterable[Session]:
        """Sessions that have a slot, the least recently used first."""
        return self._owners.values()

    def available(self, may_lose: Callable[[Session], bool]) -> int:
        """How many slots are free or belong to a session that `may_lose` its slot."""
        return len(self._free) + sum(map(may_lose, self._owners.values()))

    def acquire(self, session: Session, may_lose: Callable[[Session], bool]) -> bool:
        """Give `session`, which has none, a free slot, or else that of a session that `may_lose` it.

        Returns False if there is no such slot.
        """
        if self._free:
            self.give(session)
            return True
        victim = self._victim(may_lose)
        if victim is not None:
            self.take_over(victim, session)
        return victim is not None

    def evict(self, may_lose: Callable[[Session], bool]) -> Session | None:
        """Free the slot of a session that `may_lose` it. Returns this session, or None if there is none."""
        victim = self._victim(may_lose)
        if victim is not None:
            self.drop(victim)
        return victim

    def _victim(self, may_lose: Callable[[Session], bool]) -> Session | None:
        """The least recently used session that `may_lose` its slot."""
        return next(filter(may_lose, self._owners.values()), None)

    def give(self, session: Session) -> None:
        """Give a free slot to `session`, which has none."""
        session.slot, session.held = self._free.pop(), 0
        self._owners[session.slot] = session

    def take_over(self, owner: Session, session: Session) -> None:
        """Give the slot of `owner` to `session`, which has none. A shared prefix of the two stays in the slot."""
        slot = owner.slot
        assert slot is not None
        common = _common_prefix(owner.tokens, session.tokens, min(owner.held, len(session.tokens) - 1))
        if common < SHARED_AT_LEAST or not self._can_cut(slot, common):
            self._backend.release(slot)
            common = 0
        owner.slot, owner.held = None, 0
        session.slot, session.held = slot, common
        self._owners[slot] = session

    def drop(self, session: Session) -> None:
        """Free the slot of `session`. Its tokens stay; its KV cache is recomputed when next needed."""
        if session.slot is None:
            return
        slot, session.slot, session.held = session.slot, None, 0
        del self._owners[slot]
        self._backend.release(slot)
        self._free.append(slot)

    def use(self, session: Session) -> None:
        """Note that a pass uses the slot of `session`: it is now the most recently used."""
        assert session.slot is not None
        self._owners.move_to_end(session.slot)

    def share(self, session: Session) -> None:
        """Copy the longest prefix of the tokens of `session` that another slot holds, if that saves `SHARED_AT_LEAST`.

        When two texts with a common prefix are prefilled at the same time, they advance by turns: the prefix is
        computed once.
        """
        if not self._backend.can_copy or session.slot is None:
            return
        best, source = session.held + SHARED_AT_LEAST - 1, None
        for slot, owner in self._owners.items():
            length = min(owner.held, len(session.tokens) - 1)  # a token is left to feed
            # The token after the best prefix so far is compared first: most owners differ there or before.
            if length > best and owner is not session and owner.tokens[best] == session.tokens[best]:
                common = _common_prefix(owner.tokens, session.tokens, length)
                if common > best and self._can_cut(slot, common):
                    best, source = common, slot
        if source is not None:
            self._backend.copy(source, session.slot, best)
            session.held = best

    def check(self) -> Iterable[str]:
        """Describe each inconsistency of the pool, for `Scheduler.check_integrity`."""
        for slot in range(self._backend.slots):
            owner, length = self._owners.get(slot), self._backend.length(slot)
            if (slot in self._free) == (owner is not None) or self._free.count(slot) > 1:
                yield f"slot {slot} is both free and owned, or neither"
            elif owner is None and length:
                yield f"slot {slot} is free and holds {length} tokens"
            elif owner is not None and owner.slot != slot:
                yield f"slot {slot} belongs to session {owner.id}, which has slot {owner.slot}"
            elif owner is not None and not owner.held <= min(length, len(owner.tokens)):
                yield (
                    f"session {owner.id} counts {owner.held} of its {len(owner.tokens)} tokens as cached, "
                    f"its slot {slot} holds {length}"
                )

    def _can_cut(self, slot: int, length: int) -> bool:
        """Whether the engine can roll the slot back to `length` tokens, so that a copy can end there."""
        limit = self._backend.max_rollback
        return limit is None or self._backend.length(slot) - length <= limit


def _common_prefix(left: list[int], right: list[int], length: int) -> int:
    """Length of the common prefix of the first `length` tokens, by bisection over slices: no loop over tokens."""
    same, end = 0, length
    while same < end:
        middle = (same + end + 1) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            end = middle - 1
    return same
