"""The pool of slots: which session has which slot, which one is evicted for another, how texts share a prefix.

When a text has ended, or its session is removed, its slot is kept until another session needs it. Sessions share
prefixes with kept texts, and with each other, within their `Session.scope`.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass

from specpair.engines.backend import Backend, Entry
from specpair.engines.kept_texts import (
    SHARED_AT_LEAST,
    KeptText,
    KeptTexts,
    can_cut,
    pays_to_cut,
    reusable,
    shared_length,
)
from specpair.engines.prompt_passes import Reading, readings_with
from specpair.speculation.acceptance.strategies import common_prefix
from verifier_server.sessions import Session

# Tokens at the end of a kept text that are given up, rather than copy the rest: in its own cells, the same prompt gets
# the same bits, while a copy goes on in other cells, in whose order attention sums.
_TAIL = 512


@dataclass(slots=True)
class Slot:
    """The slot of one session."""

    number: int
    # How many of the session's tokens it holds, from the first on. `Backend.length` also counts rejected draft tokens.
    held: int = 0
    readings: Sequence[Reading] = ()  # which of its tokens were, or will be, read as prompts
    # Since the session got the slot: answers that passes brought, and passes that brought tokens, asked for or not.
    answers: int = 0
    passes: int = 0


class SlotPool:
    """The slots of one backend. Used by the engine's thread only, except methods marked as thread-safe."""

    def __init__(self, backend: Backend, most_kept: int | None = None, *, one_scope: bool = False) -> None:
        """`most_kept`: tokens of ended texts that are kept; None: as many as the slots hold.
        `one_scope`: whether sessions share prefixes across keys and salts.
        """
        self._backend, self._one_scope = backend, one_scope
        self._kept = KeptTexts(backend, most_kept)
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
        return self._kept.tokens + sum(slot.held for slot in list(self._slots.values()))

    @property
    def kept_tokens(self) -> int:
        """How many tokens of ended texts the slots hold. Thread-safe."""
        return self._kept.tokens

    def held(self, session: Session) -> int:
        """How many of the session's tokens its slot holds; 0 without one. Thread-safe."""
        slot = self._slots.get(session)
        return 0 if slot is None else slot.held

    def unread(self, session: Session) -> int:
        """How many tokens before the pending ones its slot lacks, and a prefill must read."""
        return max(0, len(session.tokens) - session.pending - self.held(session))

    def available(self, may_lose: Callable[[Session], bool]) -> int:
        """How many slots are free, or kept, or belong to a session that `may_lose` its slot."""
        return len(self._free) + len(self._kept) + sum(map(may_lose, self._slots))

    def acquire(self, session: Session, may_lose: Callable[[Session], bool]) -> bool:
        """Give `session`, which has none, a free slot, or else that of a kept text, or of a session that `may_lose` it.

        Returns False if there is no such slot. The slot of a kept text that begins like the session's is taken over if
        little else is in it, or if no copy can be made.
        """
        scope = self._scope(session)
        alike, common = self._kept.best(session.tokens, scope)
        if alike is not None and (not self._backend.can_copy or len(alike.tokens) - common <= _TAIL):
            return self._continue(alike, session, common)
        if alike is None and (nearest := self._kept.nearest(session.tokens, scope)) is not None:
            return self._continue(nearest, session, 0)
        if self._free:
            self._slots[session] = Slot(self._free.pop(), readings=readings_with((), 0, session.prompt_len))
            return True
        if (oldest := self._kept.oldest(other_than=alike)) is not None:
            return self._continue(oldest, session, 0)
        if alike is not None:
            return self._continue(alike, session, common)
        victim = self._victim(may_lose)
        if victim is None:
            return False
        slot, common = self._slots.pop(victim), 0
        if self._scope(victim) == scope:
            common = self._reusable(slot, victim, session, SHARED_AT_LEAST - 1)
        self._begin(session, slot, common)
        return True

    def evict(self, may_lose: Callable[[Session], bool]) -> Session | None:
        """Free the slot of a session that `may_lose` it. Returns this session, or None if there is none."""
        victim = self._victim(may_lose)
        if victim is not None:
            self.drop(victim)
        return victim

    def _victim(self, may_lose: Callable[[Session], bool]) -> Session | None:
        """The least recently used session that `may_lose` its slot. Counts the eviction."""
        victim = next(filter(may_lose, self._slots), None)
        self.evictions += victim is not None and victim.finish_reason is None
        return victim

    def replace(self, owner: Session, session: Session) -> None:
        """Give the slot of `owner` to `session`, which continues its text. The shared prefix stays in the slot."""
        slot = self._slots.pop(owner)
        common = shared_length(owner.tokens, session.tokens, min(slot.held, len(session.tokens) - 1))
        stays = common >= SHARED_AT_LEAST and pays_to_cut(self._backend, slot.number, common)
        self._begin(session, slot, common if stays else 0)

    def _continue(self, text: KeptText, session: Session, common: int) -> bool:
        """Give the slot of a kept text to `session`, with the first `common` tokens."""
        self._kept.remove(text)
        self._begin(session, Slot(text.slot, len(text.tokens), text.readings), common)
        return True

    def _begin(self, session: Session, slot: Slot, common: int) -> None:
        """Give `session` the place of `slot`, whose first `common` tokens it takes over."""
        if not common:
            self._release(slot.number)
        readings = readings_with(slot.readings, common, session.prompt_len)
        self._slots[session] = Slot(slot.number, common, readings)

    def _reusable(self, slot: Slot, owner: Session, session: Session, more_than: int) -> int:
        """As `reusable`, of the slot of `owner` for `session`."""
        held = owner.tokens, slot.held, slot.readings
        return reusable(self._backend, slot.number, *held, session.tokens, more_than)

    def drop(self, session: Session) -> None:
        """Free the slot of `session`, if any. Its tokens stay; its KV cache is recomputed when next needed."""
        slot = self._slots.pop(session, None)
        if slot is not None:
            self._release(slot.number)
            self._free.append(slot.number)

    def retire(self, session: Session) -> None:
        """Keep the text of `session`, which has ended or is removed, in its slot while there is room; else free it."""
        slot = self._slots.pop(session, None)
        if slot is not None:
            text = KeptText(slot.number, session.tokens[: slot.held], self._scope(session), slot.readings)
            for number in self._kept.keep(text):
                self._release(number)
                self._free.append(number)

    def _release(self, number: int) -> None:
        self._backend.release(number)
        for other in self._slots.values():  # where the slot held NaN, clearing it may have emptied others
            other.held = min(other.held, self._backend.length(other.number))
        for lost in self._kept.shrunk():
            self._backend.release(lost)
            self._free.append(lost)

    def use(self, session: Session) -> None:
        """Note that a pass uses the slot of `session`: it is now the most recently used."""
        self._slots.move_to_end(session)

    def fed(self, session: Session) -> None:
        """Note that a pass fed tokens to the slot of `session`."""
        slot = self._slots[session]
        slot.held = self._backend.length(slot.number)

    def keep(self, session: Session, entry: Entry, path: Sequence[int]) -> int:
        """Keep the accepted path of the tree of `entry` in the slot of `session`. Return how many of its tokens the
        next pass must read again.

        `path`: as in `Backend.keep`.
        """
        kept = len(path)
        if not self._backend.keeps_any_path:
            kept = common_prefix(path, range(entry.trunk, len(entry.tokens)))
        self._backend.keep(self._slots[session].number, path[:kept])
        self.fed(session)
        return len(path) - kept

    def roll_back(self, session: Session) -> None:
        """Forget the draft tokens in the slot of `session` that were rejected. Frees the slot if the engine cannot."""
        slot = self._slots[session]
        slot.held = min(slot.held, len(session.tokens) - 1)
        if not can_cut(self._backend, slot.number, slot.held):
            self.drop(session)

    def share(self, session: Session) -> None:
        """Copy the longest prefix of the tokens of `session` that another slot holds, if that saves `SHARED_AT_LEAST`.

        When two texts with a common prefix are prefilled at the same time, they advance by turns: the prefix is
        computed once.
        """
        if not self._backend.can_copy:
            return
        target, scope = self._slots[session], self._scope(session)
        kept, best = self._kept.best(session.tokens, scope, target.held)
        source = None if kept is None else (kept.slot, kept.readings)
        best = max(best, target.held + SHARED_AT_LEAST - 1)
        for owner, slot in self._slots.items():
            if owner is not session and self._scope(owner) == scope:
                common = self._reusable(slot, owner, session, best)
                if common > best:
                    best, source = common, (slot.number, slot.readings)
        if source is not None:
            number, readings = source
            self._backend.copy(number, target.number, best)
            target.held, target.readings = best, readings_with(readings, best, session.prompt_len)

    def _scope(self, session: Session) -> Hashable:
        """The scope within which sessions share prefixes."""
        return None if self._one_scope else session.scope

    def check(self) -> Iterable[str]:
        """Describe each inconsistency of the pool, for `Scheduler.check_integrity`."""
        owned = [slot.number for slot in self._slots.values()]
        kept = [text.slot for text in self._kept]
        if sorted(self._free + owned + kept) != list(range(self._backend.slots)):
            yield f"the slots {self._free} are free, {kept} are kept, and sessions have the slots {owned}"
        for number in self._free:
            if length := self._backend.length(number):
                yield f"slot {number} is free and holds {length} tokens"
        if self._kept.tokens != sum(len(text.tokens) for text in self._kept):
            yield f"{self._kept.tokens} tokens are counted as kept"
        for text in self._kept:
            if (length := self._backend.length(text.slot)) < len(text.tokens):
                yield f"slot {text.slot} is kept for {len(text.tokens)} tokens and holds {length}"
        for owner, slot in self._slots.items():
            length = self._backend.length(slot.number)
            if not slot.held <= min(length, len(owner.tokens)):
                yield (
                    f"session {owner.id} counts {slot.held} of its {len(owner.tokens)} tokens as cached, "
                    f"its slot {slot.number} holds {length}"
                )
