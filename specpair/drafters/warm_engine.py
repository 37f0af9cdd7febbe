"""An engine that drafts texts in sequence. Each text is read from where it differs from the previous text.

The next turn of a chat begins with the whole turn before. What the draft model computes changes no text, so the prefix
may end anywhere. A text of another scope (see `specpair.engines.kept_texts`) shares nothing.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from specpair.drafters.composed_drafter import SLOWER, ComposedDrafter, HeldContext, Reads, can_compose
from specpair.drafters.draft_model import ModelDrafter, model_drafter
from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.kept_texts import can_cut, shared_length
from specpair.engines.probe_texts import timing_ids
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.drafting.composed_context import SIZES
from specpair.speculation.policy.cost_by_width import LEAST
from specpair.speculation.text_options import TextSpec

K = TypeVar("K")

PATIENCE = 1.0  # seconds of reading a prompt from which only parts of it are read at first


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Seconds of a draft model's passes."""

    token: float  # a pass over one token that drafts the next one
    read: float  # a token of a text that is read in one pass


_LONGER = 1.02  # factor of the length, from text to text, as other work may have slowed the steps that were timed
UNTIMED = PassTimes(0.0, 0.0)


class WarmEngine:
    """An engine with the tokens that it holds of the last text. Used by one thread at a time."""

    def __init__(self, engine: Backend, times: PassTimes = UNTIMED, *, whole: bool = False) -> None:
        """`whole`: whether a prompt of which parts are read at first is read as a whole, too, if there is time."""
        self._engine, self._times, self._whole = engine, times, whole
        self._slow_from = inf  # tokens of a text from which steps over its parts are better than over all of it
        self._last: ModelDrafter | None = None
        self._scope: Hashable = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The draft model's."""
        return self._engine.vocabulary

    @property
    def held(self) -> int:
        """How many tokens of the last text it holds."""
        return 0 if self._last is None else self._engine.length(self._last.remains[0])

    @property
    def begun(self) -> int:
        """The number of the text's first tokens that need not be read; 0 where no drafter could be made."""
        return 0 if self._last is None else self._last.begun

    def shared(self, prompt: Sequence[int], scope: Hashable) -> int:
        """How many tokens of a prompt it need not read."""
        if self._last is None or scope != self._scope:
            return 0
        parts = self._last.held if isinstance(self._last, ComposedDrafter) else None
        slot, tokens = self._last.remains if parts is None else (parts.slot, parts.text)
        common = shared_length(tokens, prompt, min(len(tokens), len(prompt) - 1))
        cut = common if parts is None else self._engine.length(slot) - (len(tokens) - common)
        needed = 0 if parts is None else parts.window
        # A shared pass that failed leaves slots empty of which their drafters have not heard.
        there = 0 < cut <= self._engine.length(slot)
        return common if common > needed and there and can_cut(self._engine, slot, cut) else 0

    def drafter(self, spec: TextSpec, vocabulary_size: int, prompt: Sequence[int], scope: Hashable) -> ModelDrafter:
        """The drafter of the next text. The previous drafter must not be used any more. Otherwise as `model_drafter`.

        What it does not share with the last text is released, so that it takes no memory.
        """
        common, last = self.shared(prompt, scope), self._last
        self._learn(last)
        parts = last.held if common and isinstance(last, ComposedDrafter) else None
        composed = parts is not None or self._composes(len(prompt), len(prompt) - common)
        begun: HeldContext | tuple[int, int] | None = None
        if parts is not None:
            begun = replace(parts, text=prompt[:common])
            self.empty(but=parts.slot)
        elif last is not None and common and not composed:
            begun = last.remains[0], common
            self.empty(but=begun[0])
        else:
            self.empty()
        self._scope = scope
        if can_compose(self._engine):
            first = self._whole and len(prompt) < self._slow_from
            self._last = ComposedDrafter(
                self._engine,
                spec.drawn,
                vocabulary_size,
                draws=spec.strategy.draws,
                prompt_len=len(prompt),
                held=begun,
                reads=(Reads.PARTS_FIRST if first else Reads.PARTS) if composed else Reads.ALL,
            )
        else:
            assert not isinstance(begun, HeldContext)
            self._last = model_drafter(self._engine, spec, vocabulary_size, len(prompt), begun)
        return self._last

    def _learn(self, last: ModelDrafter | None) -> None:
        """Learn from the last text whether draft steps over all of it took too long."""
        if not isinstance(last, ComposedDrafter):
            return
        length, token = last.context_read.read, self._times.token
        self._slow_from *= _LONGER
        if last.slow_from is not None:
            self._slow_from = min(self._slow_from, last.slow_from)
        elif last.held is None and length > SIZES.most and token:
            # What a step takes grows with what it attends to.
            parts = token + max(0.0, last.step_time - token) * SIZES.most / length
            if last.step_time > SLOWER * parts:
                self._slow_from = min(self._slow_from, length)

    def _composes(self, length: int, unread: int) -> bool:
        """Whether only parts of a prompt are read, at first at least."""
        if length <= SIZES.sink + SIZES.window:  # the parts are the whole
            return False
        too_long = length > self._engine.context_length - SIZES.window or length >= self._slow_from
        return (too_long or unread * self._times.read > PATIENCE) and can_compose(self._engine)

    def emptied(self) -> Backend:
        """The engine itself, with empty slots."""
        self.empty()
        return self._engine

    def empty(self, but: int | None = None) -> None:
        """Release all slots, or all but one."""
        self._last = None
        for slot in range(self._engine.slots):
            # Only if it holds something, as a release may have to wait for the draft model's pass under way.
            if slot != but and self._engine.length(slot):
                self._engine.release(slot)


def warmest(engines: Iterable[tuple[K, WarmEngine]], prompt: Sequence[int], scope: Hashable) -> K:
    """The key of the idle engine that holds the longest beginning of a prompt.

    Among equals it is the first one that holds the least of other texts. There must be one.
    """
    return max(engines, key=lambda each: (each[1].shared(prompt, scope), -each[1].held))[0]


READ_WIDTH = 32  # most tokens of the pass that shows how long reading takes
_ROUNDS = 5  # passes of each kind
_LIMIT = 0.5  # seconds after which no further round begins


def pass_times(backend: Backend, clock: Callable[[], float]) -> PassTimes:
    """Measure in slot 0, which is released afterwards.

    `clock`: returns seconds.

    Raises what the engine raises.

    The shortest of several passes counts, since the first ones may also prepare what later ones use.
    """
    wanted = [TopLogitsSpec(1, 1.0, backend.vocabulary.size)]
    read = max(1, min(READ_WIDTH, backend.max_batch_tokens, backend.context_length - 1))
    ids = timing_ids(backend.vocabulary.size, read + 1)
    token_times, read_times = list[float](), list[float]()
    began = clock()
    while len(token_times) < 2 or (len(token_times) < _ROUNDS and clock() - began < _LIMIT):
        started = clock()
        backend.extend([Entry(0, 0, ids[:read], read)])
        reached = clock()
        backend.extend_top_logits([Entry(0, read, ids[read:], 0)], wanted)
        token_times.append(clock() - reached)
        read_times.append((reached - started) / read)
        backend.release(0)
    return PassTimes(max(LEAST, min(token_times)), min(read_times))
