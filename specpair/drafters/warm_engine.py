"""An engine that drafts texts in sequence. Each text is read from where it differs from the previous text.

The next turn of a chat begins with the whole turn before. What the draft model computes changes no text, so the prefix
may end anywhere. A text of another scope (see `specpair.engines.kept_texts`) shares nothing.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from specpair.drafters.draft_model import ModelDrafter, model_drafter
from specpair.engines.backend import Backend, Entry, TopLogitsSpec, timing_ids
from specpair.engines.kept_texts import can_cut, shared_length
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.policy.cost_by_width import LEAST
from specpair.speculation.text_options import TextSpec

K = TypeVar("K")


class WarmEngine:
    """An engine with the tokens that it holds of the last text. Used by one thread at a time."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self._last: ModelDrafter | None = None
        self._scope: Hashable = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The draft model's."""
        return self._engine.vocabulary

    @property
    def held(self) -> int:
        """How many tokens of the last text it holds."""
        return 0 if self._last is None else len(self._last.remains[1])

    @property
    def begun(self) -> int:
        """The number of the text's first tokens that need not be read; 0 where no drafter could be made."""
        return 0 if self._last is None else self._last.begun

    def shared(self, prompt: Sequence[int], scope: Hashable) -> int:
        """How many tokens of a prompt it need not read."""
        if self._last is None or scope != self._scope:
            return 0
        slot, tokens = self._last.remains
        common = shared_length(tokens, prompt, min(len(tokens), len(prompt) - 1))
        return common if common > 0 and can_cut(self._engine, slot, common) else 0

    def drafter(self, spec: TextSpec, vocabulary_size: int, prompt: Sequence[int], scope: Hashable) -> ModelDrafter:
        """The drafter of the next text. The previous drafter must not be used any more. Otherwise as `model_drafter`.

        What it does not share with the last text is released, so that it takes no memory.
        """
        common = self.shared(prompt, scope)
        begun = None
        if self._last is not None and common:
            begun = self._last.remains[0], common
        self.empty(but=None if begun is None else begun[0])
        self._scope = scope
        self._last = model_drafter(self._engine, spec, vocabulary_size, len(prompt), begun)
        return self._last

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


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Seconds of a draft model's passes."""

    token: float  # a pass over one token that drafts the next one
    read: float  # a token of a text that is read in one pass


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
