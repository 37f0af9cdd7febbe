"""Drafts for a long text with a draft model that has read a part of it (see `composed_context`).

A slot holds the parts one behind the other: the head, which is the sink and the pieces, then the window. `ModelDrafter`
counts positions of the text. The head stands where the tokens right before the window stood, and `_base` is where it
begins. So the noise knows the true positions.

A piece is read in another slot, behind a copy of the sink, and then moved in front of the window. Nothing else is read
again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specpair.drafters.base import READ_CHUNK
from specpair.drafters.draft_model import DraftSlot, ModelDrafter, Steps
from specpair.engines.backend import Backend, Entry
from specpair.engines.errors import CacheFull
from specpair.speculation.drafting.composed_context import (
    SIZES,
    Change,
    ComposedContext,
    ContextRead,
    ContextSizes,
    Span,
)
from specpair.speculation.sampling.sampling import Sampling

SPARE_CELLS = SIZES.sink + SIZES.piece  # KV cells of a spare slot, in which a piece is read
_SLOWER = 1.25  # a draft step over the whole prompt may take so many times one over its parts


@dataclass(frozen=True, slots=True)
class HeldContext:
    """The parts of a text that a slot holds."""

    slot: int
    pieces: tuple[Span, ...]
    window: int  # where it begins
    text: Sequence[int]  # as far as the window goes


def can_compose(backend: Backend, sizes: ContextSizes = SIZES) -> bool:
    """Whether the engine can hold a composed context, and read a piece beside it."""
    room = backend.context_length >= sizes.most + sizes.window
    return room and backend.can_splice and backend.can_copy and backend.slots > 1


class ComposedDrafter(ModelDrafter):
    """As `ModelDrafter`, for a text of which only parts are read."""

    def __init__(
        self,
        backend: Backend,
        sampling: Sampling,
        vocabulary_size: int | None = None,
        *,
        draws: bool = False,
        prompt_len: int = 0,
        held: HeldContext | None = None,
        sizes: ContextSizes = SIZES,
        whole: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`held`: of this text; None: all slots are empty.
        `whole`: whether `read_prompt` also reads all of the prompt, if there is time until the answer begins.
        `clock`: in seconds.
        """
        super().__init__(backend, sampling, vocabulary_size, draws=draws, prompt_len=prompt_len)
        self._whole, self._clock, self._prompt_len, self._sizes = whole, clock, prompt_len, sizes
        self._composed: ComposedContext | None = ComposedContext(prompt_len, sizes)  # None: all of the text is read
        self._laid: list[Span] = []  # the head's parts
        self._window = 0  # where the window begins
        self._unread = min(prompt_len, sizes.sink + sizes.window)
        if held is not None:
            self._composed = ComposedContext(prompt_len, sizes, held.text, held.pieces, held.window)
            self._text, self._length = held.text, len(held.text)
            self._lay_out(self._composed)
            for slot in self._slots:
                slot.stem = self._length if slot.number == held.slot else self._base
            self._unread = min(self._unread, prompt_len - self._length)

    @property
    def begun(self) -> int:
        return self._prompt_len - self._unread

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
        return super().context_read if self._composed is None else self._composed.read

    def read_prompt(
        self, text: Sequence[int], held: int, stopped: Callable[[], bool], answered: Callable[[], bool]
    ) -> int:
        """As `base.read_prompt`: sink and window first, so that the first draft waits for nothing else."""
        read = self.expand(text, [[]], 0).read
        if self._composed is not None and not (stopped() or answered()):
            for change in self._composed.first_pieces():
                read += self._run(self._change(self._composed, change))
                if stopped() or answered():
                    break
            if self._whole:
                read += self._read_all(text, lambda: stopped() or answered())
        return read

    @property
    def _main(self) -> DraftSlot:
        return max(self._slots, key=lambda slot: slot.stem)

    @property
    def _most_ahead(self) -> int:
        return super()._most_ahead - (0 if self._composed is None else self._sizes.most)

    def _make_room(self, ahead: int) -> Steps[int]:
        if self._composed is None:
            return (yield from super()._make_room(ahead))
        change = self._composed.follow(self._text)
        return 0 if change is None else (yield from self._change(self._composed, change))

    def _change(self, composed: ComposedContext, change: Change) -> Steps[int]:
        """Make a change of the context in the slots. Returns how many tokens were read for it."""
        main, read = self._main, 0
        if main.stem <= change.window or not self._laid:  # nothing is read that stays
            self._lay_out(composed)
            self._forget()
            return 0
        spare, *_ = others = [slot for slot in self._slots if slot is not main]
        for slot in others:  # they share cells with the main one, which is going to be moved
            self._empty(slot)
        if change.new is not None:
            try:
                read = yield from self._read_piece(change.new, len(composed.head[0]), main.number, spare.number)
            except CacheFull:
                composed.refuse(change.new)
                self._lay_out(composed)
                self._forget()
                raise
        for piece in change.lost:
            at = sum(map(len, self._laid[: self._laid.index(piece)]))
            self.backend.splice(main.number, at, at + len(piece))
            self._laid.remove(piece)
        begin, sink = sum(map(len, self._laid)), len(composed.head[0])
        end = begin + change.window - self._window
        begin += sink - len(self._laid[0])  # a text that was short has no sink yet: it is the window's first tokens
        if begin < end:
            self.backend.splice(main.number, begin, end)
        if change.new is not None:
            self.backend.splice(main.number, begin, begin, spare.number, sink)
        self._lay_out(composed)
        for slot in others:
            slot.stem = self._base
        return read

    def _read_piece(self, piece: Span, sink: int, main: int, spare: int) -> Steps[int]:
        """Read a piece behind the sink, in a spare slot."""
        step = self.backend.max_batch_tokens
        self.backend.copy(main, spare, sink)
        for at in range(piece.start, piece.end, step):
            tokens = self._readable(self._text[at : min(at + step, piece.end)])
            yield from self._forward([Entry(spare, sink + at - piece.start, tokens, len(tokens))])
        return len(piece)

    def _lay_out(self, composed: ComposedContext) -> None:
        """Take over the parts of the context: which tokens the slots hold, and where."""
        self._laid, self._window = composed.head, composed.window
        self._head = [token for part in self._laid for token in self._readable(self._text[part.start : part.end])]
        self._base = self._window - len(self._head)

    def _empty(self, slot: DraftSlot) -> None:
        if self.backend.length(slot.number):
            self.backend.release(slot.number)
        slot.stem, slot.tail = self._base, []

    def _read_all(self, text: Sequence[int], stopped: Callable[[], bool]) -> int:
        """Read all of the text in another slot. If there is time for it and it pays, go on with that one."""
        main, last = self._main, len(text) - 1
        if len(text) + self._sizes.window > self.backend.context_length or main.stem < last:
            return 0
        others = [slot for slot in self._slots if slot is not main]
        whole = others[0]
        for slot in others:
            self._empty(slot)
        read, step = 0, min(READ_CHUNK, self.backend.max_batch_tokens)
        try:
            while read < last and not stopped():
                tokens = self._readable(text[read : min(read + step, last)])
                self.backend.extend([Entry(whole.number, read, tokens, len(tokens))])
                read += len(tokens)
            if read == last and self._pays(whole.number, main.number, last):
                self._composed, self._head, self._base = None, (), 0
                self._empty(main)
                for slot in self._slots:
                    slot.stem = last if slot is whole else 0
                return read
        except CacheFull:  # the slots have no room for both
            pass
        self._empty(whole)
        return read

    def _pays(self, whole: int, main: int, last: int) -> bool:
        """Whether a draft step over all of the text, in slot `whole`, takes little longer than one over its parts."""
        return self._step_time(whole, last) <= _SLOWER * self._step_time(main, last - self._base)

    def _step_time(self, slot: int, start: int) -> float:
        """Seconds of a draft step behind what a slot holds."""
        times = []
        for _ in range(2):
            began = self._clock()
            self.backend.extend_top_logits([Entry(slot, start, self._readable(self._text[-1:]), 0)], [self._wanted])
            times.append(self._clock() - began)
        return min(times)
