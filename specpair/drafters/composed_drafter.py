"""Drafts for a long text with a draft model that has read a part of it (see `composed_context`).

A slot holds the parts one behind the other: the head, which is the sink and the pieces, then the window. `ModelDrafter`
counts positions of the text. The head stands where the tokens right before the window stood, and `_base` is where it
begins. So the noise knows the true positions.

A piece is read in a spare slot, behind a copy of the sink, and then moved in front of the window. Nothing else is read
again. Where there is time between draft steps, it is read then. Else the draft step that needs it reads it.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specpair.drafters.base import READ_CHUNK, Expansion
from specpair.drafters.draft_model import DraftSlot, ModelDrafter, Steps
from specpair.engines.backend import Backend, Entry
from specpair.engines.errors import CacheFull
from specpair.speculation.drafting.composed_context import SIZES, ComposedContext, ContextRead, ContextSizes, Span
from specpair.speculation.sampling.sampling import Sampling

SPARE_CELLS = SIZES.sink + SIZES.piece  # KV cells of a spare slot, in which a piece is read
SLOWER = 1.25  # a draft step over all of a text may take so many times one over its parts

_TIMED = 4  # draft steps of which the shortest tells what one takes
_LATEST = 8  # draft steps, of which the shortest counts


@dataclass(frozen=True, slots=True)
class HeldContext:
    """The parts of a text that a slot holds."""

    slot: int
    pieces: tuple[Span, ...]
    window: int  # where it begins
    text: Sequence[int]  # as far as the window goes


def can_compose(backend: Backend, sizes: ContextSizes = SIZES) -> bool:
    """Whether the engine can hold a composed context, and read a piece beside it."""
    room = backend.context_length >= sizes.engine_context
    return room and backend.can_splice and backend.can_copy and backend.slots > 1


class Reads(StrEnum):
    """What is read of a text."""

    PARTS = "parts"
    PARTS_FIRST = "parts first"  # and all, if there is time until the answer begins, and it pays
    ALL = "all"  # as long as it fits into the context, and then parts


class ComposedDrafter(ModelDrafter):
    """As `ModelDrafter`, for a text of which only parts are read, or which has outgrown the context."""

    def __init__(
        self,
        backend: Backend,
        sampling: Sampling,
        vocabulary_size: int | None = None,
        *,
        draws: bool = False,
        prompt_len: int = 0,
        held: HeldContext | tuple[int, int] | None = None,
        sizes: ContextSizes = SIZES,
        reads: Reads = Reads.PARTS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`held`: of this text; with `Reads.ALL` the slot and number of its first tokens; None: all slots are empty.
        `clock`: in seconds.
        """
        begun = held if isinstance(held, tuple) else None
        super().__init__(backend, sampling, vocabulary_size, draws=draws, prompt_len=prompt_len, begun=begun)
        self._reads, self._clock, self._prompt_len, self._sizes = reads, clock, prompt_len, sizes
        self.slow_from: int | None = None  # a length from which a draft step over all of a text takes too long
        self._step_times = deque[float](maxlen=_LATEST)
        # None: all of the text is read.
        self._composed = None if reads is Reads.ALL else ComposedContext(prompt_len, sizes)
        self._laid: list[Span] = []  # the head's parts
        self._window = 0  # where the window begins
        used = held.slot if isinstance(held, HeldContext) else 0 if held is None else held[0]
        self._spare = self._slots.pop(0 if used == len(self._slots) - 1 else -1)
        self.width -= 1
        self._reading: Span | None = None  # a piece of which the spare slot holds the beginning, behind the sink
        self._lacks_since: int | None = None  # the length of the text when a piece was first lacking; None: none is
        self._waits = True  # whether draft steps wait for pieces, as there is no time between them
        self._unread = min(prompt_len, sizes.sink + sizes.window)  # of the prompt, before the first draft
        if isinstance(held, HeldContext):
            self._composed = ComposedContext(prompt_len, sizes, held.text, held.pieces, held.window)
            self._text, self._length = held.text, len(held.text)
            self._lay_out(self._composed.head, held.window)
            for slot in self._slots:
                slot.stem = self._length if slot.number == held.slot else self._base
            self._unread = min(self._unread, prompt_len - self._length)

    @property
    def begun(self) -> int:
        return super().begun if self._composed is None else self._prompt_len - self._unread

    @property
    def step_time(self) -> float:
        """Seconds of a draft step of late; 0: none was timed."""
        return min(self._step_times, default=0.0)

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        began = self._clock()
        expansion = super().expand(text, tails, runners_up)
        if expansion.read == len(tails) == 1:
            self._step_times.append(self._clock() - began)
        return expansion

    @property
    def remains(self) -> tuple[int, Sequence[int]]:
        return super().remains if self._composed is None else (self._main.number, ())

    @property
    def held(self) -> HeldContext | None:
        """The parts that a slot holds, for the next text; None: it holds all of the text, or too little of it."""
        main = self._main
        if self._composed is None or main.stem <= self._window or not self._laid:
            return None
        return HeldContext(main.number, tuple(self._laid[1:]), self._window, self._text[: main.stem])

    @property
    def context_read(self) -> ContextRead:
        if self._composed is None or not self._laid:
            return super().context_read
        sink, *pieces = map(len, self._laid)
        return ContextRead(sink, sum(pieces), self._length - self._window, self._length)

    def read_prompt(
        self, text: Sequence[int], held: int, stopped: Callable[[], bool], answered: Callable[[], bool]
    ) -> int:
        """As `base.read_prompt`: sink and window first, so that the first draft waits for nothing else."""

        def over() -> bool:
            return stopped() or answered()

        if self._composed is None:
            return super().read_prompt(text, held, stopped, answered)
        read = self.expand(text, [[]], 0).read
        if not over():
            for _ in self._composed.first_pieces():
                while not over() and (new := self._read_chunk()):
                    read += new
                if over():
                    break
            if self._reads is Reads.PARTS_FIRST and not over():
                read += self._read_all(text, over)
        return read

    def read_between_steps(self, stopped: Callable[[], bool]) -> int:
        """As `base.read_between_steps`."""
        self._waits, read = False, 0
        while not stopped():
            read = self._read_chunk()
            if not read:
                break
        return read

    def _read_chunk(self) -> int:
        """Read on in a piece that is lacking. Returns how many tokens were read; 0: there is nothing to read."""
        composed, emptied = self._composed, self.backend.length(self._main.number) < self._sizes.sink
        if composed is None or emptied or self._lacking(composed) is None:
            return 0
        try:
            return self._run(self._read_on(composed, self._sizes.chunk))
        except CacheFull:  # it does without the piece then
            return 0

    @property
    def _main(self) -> DraftSlot:
        return max(self._slots, key=lambda slot: slot.stem)

    @property
    def _most_ahead(self) -> int:
        return super()._most_ahead - self._sizes.most

    def _make_room(self, ahead: int) -> Steps[int]:
        if self._composed is None and self._length + ahead <= self.backend.context_length:
            return 0
        if self._composed is None:
            self._composed = ComposedContext(self._prompt_len, self._sizes)
        self._composed.follow(self._text)
        if self._main.stem <= self._composed.window or not self._laid:  # nothing is read that stays
            self._lay_out(self._composed.head, self._composed.window)
            self._forget()
            return 0
        self._arrange(self._composed, None)
        if self._lacking(self._composed) is None:
            self._lacks_since = None
            return 0
        if self._lacks_since is None:
            self._lacks_since = self._length
        if self._waits:
            return (yield from self._read_on(self._composed, self._sizes.piece))
        late = self._length - self._lacks_since >= self._sizes.late
        return (yield from self._read_on(self._composed, self._sizes.chunk)) if late else 0

    def _lacking(self, composed: ComposedContext) -> Span | None:
        """The piece to read next: one that was chosen and is not in the slots."""
        return next((piece for piece in composed.pieces if piece not in self._laid), None)

    def _read_on(self, composed: ComposedContext, most: int) -> Steps[int]:
        """Read `most` tokens of the lacking piece in the spare slot. At its end, it goes to the others.

        Returns how many tokens were read.
        """
        piece, sink, read = self._lacking(composed), self._sizes.sink, 0
        assert piece is not None
        if piece != self._reading:
            self._empty(self._spare)
            self.backend.copy(self._main.number, self._spare.number, sink)
            self._reading = piece
        at = piece.start + self.backend.length(self._spare.number) - sink
        end = min(at + most, piece.end)
        while at < end:
            tokens = self._readable(self._text[at : min(at + self.backend.max_batch_tokens, end)])
            try:
                yield from self._forward([Entry(self._spare.number, sink + at - piece.start, tokens, len(tokens))])
            except CacheFull:
                composed.refuse(piece)
                self._lay_out(composed.head, self._window)
                self._forget()
                raise
            at, read = at + len(tokens), read + len(tokens)
        if at == piece.end:
            self._arrange(composed, piece)
        return read

    def _arrange(self, composed: ComposedContext, new: Span | None) -> None:
        """Move what the slots hold to where the context has it. `new`: a piece that the spare slot holds.

        Pieces that are no longer wanted stay until one comes in their place.
        """
        if new is None and composed.window == self._window:
            return
        main = self._main
        for slot in self._slots:  # they share cells with the main one, which is going to be moved
            if slot is not main:
                self._empty(slot)
        pieces = list(self._laid[1:])
        for piece in [] if new is None else [piece for piece in pieces if piece not in composed.pieces]:
            at = len(self._laid[0]) + sum(map(len, pieces[: pieces.index(piece)]))
            self.backend.splice(main.number, at, at + len(piece))
            pieces.remove(piece)
        sink, begin = composed.head[0], len(self._laid[0]) + sum(map(len, pieces))
        end = begin + composed.window - self._window
        begin += len(sink) - len(self._laid[0])  # a short text has no sink yet: it is the window's first tokens
        if begin < end:
            self.backend.splice(main.number, begin, end)
        if new is not None:
            self.backend.splice(main.number, begin, begin, self._spare.number, len(sink))
            pieces.append(new)
            self._reading, self._lacks_since = None, None
        self._lay_out([sink, *pieces], composed.window)
        for slot in self._slots:
            if slot is not main:
                slot.stem = self._base

    def _lay_out(self, head: Sequence[Span], window: int) -> None:
        """Take over which tokens the slots hold, and where."""
        self._laid, self._window = list(head), window
        self._head = [token for part in self._laid for token in self._readable(self._text[part.start : part.end])]
        self._base = self._window - len(self._head)

    def _forget(self) -> None:
        super()._forget()
        self._empty(self._spare)

    def _empty(self, slot: DraftSlot) -> None:
        if self.backend.length(slot.number):
            self.backend.release(slot.number)
        slot.stem, slot.tail = self._base, []
        if slot is self._spare:
            self._reading = None

    def _read_all(self, text: Sequence[int], stopped: Callable[[], bool]) -> int:
        """Read all of the text in the spare slot. If there is time for it and it pays, go on with that one."""
        main, last = self._main, len(text) - 1
        if len(text) + self._sizes.window > self.backend.context_length or main.stem < last:
            return 0
        for slot in (*self._slots, self._spare):
            if slot is not main:
                self._empty(slot)
        whole, read, step = self._spare, 0, min(READ_CHUNK, self.backend.max_batch_tokens)
        try:
            while read < last and not stopped():
                tokens = self._readable(text[read : min(read + step, last)])
                self.backend.extend([Entry(whole.number, read, tokens, len(tokens))])
                read += len(tokens)
            if read == last and self._pays(whole.number, main.number, last):
                self._composed, self._laid, self._head, self._base = None, [], (), 0
                self._empty(main)
                self._slots[self._slots.index(main)], self._spare = whole, main
                for slot in self._slots:
                    slot.stem = last if slot is whole else 0
                return read
        except CacheFull:  # the slots have no room for both
            if self.backend.length(main.number) < main.stem - self._base:  # a draft step that was timed met it
                self._forget()
        self._empty(whole)
        return read

    def _pays(self, whole: int, main: int, last: int) -> bool:
        """Whether a draft step over all of the text, in slot `whole`, takes little longer than one over its parts."""
        pays = self._step_time(whole, last) <= SLOWER * self._step_time(main, last - self._base)
        self.slow_from = None if pays else last
        return pays

    def _step_time(self, slot: int, start: int) -> float:
        """Seconds of a draft step behind what a slot holds."""
        times = []
        for _ in range(_TIMED):
            began = self._clock()
            self.backend.extend_top_logits([Entry(slot, start, self._readable(self._text[-1:]), 0)], [self._wanted])
            times.append(self._clock() - began)
        return min(times)
