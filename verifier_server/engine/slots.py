"""The pool of slots: which session has which slot, which one is evicted for another, how sessions share a prefix."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from backends.base import Backend
from verifier_server.sessions import Session

SHARED_AT_LEAST = 16  # tokens by which a shared prefix must be longer than those the slot already holds


@dataclass(slots=True)
class Slot:
    """The slot of one session."""

    number: int
    # How many of the session's tokens it holds, from the first on. `Backend.length` also counts rejected draft tokens.
    held: int = 0
    answers: int = 0  # answers that passes brought since the session got the slot


class SlotPool:
    """The slots of one backend. Used by the engine's thread only, except what is said to be thread-safe."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free = list(reversed(range(backend.slots)))
        self._slots: OrderedDict[Session, Slot] = OrderedDict()  # by owner, the least recently used first
        self.evictions = 0  # how often a session whose text had not ended has lost its slot to another one

    def __contains__(self, session: Session) -> bool:
        """Whether `session` has a slot. Thread-safe."""
        return session in self._slots

    def __getitem__(self, session: Session) -> Slot:
        """The slot of `session`, which has one."""
        return self._slots[session]

    @property
    def owners(self) -> Set[Session]:
        """Sessions that have a slot, the least recently used first."""
        return self._slots.keys()

    @property
    def held_tokens(self) -> int:
        """How many tokens all slots hold. Thread-safe: `list` copies the slots at once."""
        return sum(slot.held for slot in list(self._slots.values()))

    def held(self, session: Session) -> int:
        """How many of the session's tokens its slot holds; 0 without one. Thread-safe."""
        slot = self._slots.get(session)
        return 0 if slot is None else slot.held

    def uncached(self, session: Session) -> int:
        """How many tokens of `session` its slot lacks: 1 (the pending token) unless there is something to prefill."""
        return len(session.tokens) - self.held(session)

    def available(self, may_lose: Callable[[Session], bool]) -> int:
        """How many slots are free or belong to a session that `may_lose` its slot."""
        return len(self._free) + sum(map(may_lose, self._slots))

    def acquire(self, session: Session, may_lose: Callable[[Session], bool]) -> bool:
        """Give `session`, which has none, a free slot, or else that of a session that `may_lose` it.

        Returns False if there is no such slot.
        """
        if self._free:
            self._slots[session] = Slot(self._free.pop())
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
        """The least recently used session that `may_lose` its slot, which it loses now."""
        victim = next(filter(may_lose, self._slots), None)
        self.evictions += victim is not None and victim.finish_reason is None
        return victim

    def take_over(self, owner: Session, session: Session) -> None:
        """Give the slot of `owner` to `session`, which has none. A shared prefix of the two stays in the slot."""
        slot = self._slots.pop(owner)
        common = _common_prefix(owner.tokens, session.tokens, min(slot.held, len(session.tokens) - 1))
        if common < SHARED_AT_LEAST or not self._can_cut(slot, common):
            self._backend.release(slot.number)
            common = 0
        self._slots[session] = Slot(slot.number, common)

    def drop(self, session: Session) -> None:
        """Free the slot of `session`, if any. Its tokens stay; its KV cache is recomputed when next needed."""
        slot = self._slots.pop(session, None)
        if slot is not None:
            self._backend.release(slot.number)
            self._free.append(slot.number)
            for other in self._slots.values():  # where the slot held NaN, clearing it may have emptied others
                other.held = min(other.held, self._backend.length(other.number))

    def use(self, session: Session) -> None:
        """Note that a pass uses the slot of `session`: it is now the most recently used."""
        self._slots.move_to_end(session)

    def fed(self, session: Session) -> None:
        """Note that a pass fed tokens to the slot of `session`."""
        slot = self._slots[session]
        slot.held = self._backend.length(slot.number)

    def roll_back(self, session: Session) -> None:
        """Forget the draft tokens in the slot of `session` that were rejected. Frees the slot if the engine cannot."""
        slot = self._slots[session]
        slot.held = min(slot.held, len(session.tokens) - 1)
        if not self._can_cut(slot, slot.held):
            self.drop(session)

    def share(self, session: Session) -> None:
        """Copy the longest prefix of the tokens of `session` that another slot holds, if that saves `SHARED_AT_LEAST`.

        When two texts with a common prefix are prefilled at the same time, they advance by turns: the prefix is
        computed once.
        """
        if not self._backend.can_copy:
            return
        target = self._slots[session]
        best, source = target.held + SHARED_AT_LEAST - 1, None
        for owner, slot in self._slots.items():
            length = min(slot.held, len(session.tokens) - 1)  # a token is left to feed
            # The token after the best prefix so far is compared first: most owners differ there or before.
            if length > best and owner is not session and owner.tokens[best] == session.tokens[best]:
                common = _common_prefix(owner.tokens, session.tokens, length)
                if common > best and self._can_cut(slot, common):
                    best, source = common, slot
        if source is not None:
            self._backend.copy(source.number, target.number, best)
            target.held = best

    def check(self) -> Iterable[str]:
        """Describe each inconsistency of the pool, for `Scheduler.check_integrity`."""
        owned = [slot.number for slot in self._slots.values()]
        if sorted(self._free + owned) != list(range(self._backend.slots)):
            yield f"the slots {self._free} are free, and sessions have the slots {owned}"
        for number in self._free:
            if length := self._backend.length(number):
                yield f"slot {number} is free and holds {length} tokens"
        for owner, slot in self._slots.items():
            length = self._backend.length(slot.number)
            if not slot.held <= min(length, len(owner.tokens)):
                yield (
                    f"session {owner.id} counts {slot.held} of its {len(owner.tokens)} tokens as cached, "
                    f"its slot {slot.number} holds {length}"
                )

    def _can_cut(self, slot: Slot, length: int) -> bool:
        """Whether the engine can roll the slot back to `length` tokens, so that a copy can end there."""
        limit = self._backend.max_rollback
        return limit is None or self._backend.length(slot.number) - length <= limit


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
