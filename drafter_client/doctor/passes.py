"""How long a model's passes take on this machine: a decode step, and a pass over several draft tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.timing_ids import timing_ids

WIDE = 8  # tokens of the wider pass
_HELD = 32  # tokens that stand before a pass
_ROUNDS = 7
_LIMIT = 2.0  # seconds after which no further round begins


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """`step`, `wide`: seconds of a pass over one token, and over `WIDE`; `wide` is None where a pass takes fewer.
    `size`: bytes of the model's file, or 0 if it is no file; `threads`: CPU threads, 0 on another device.
    """

    name: str
    engine: str
    size: int
    threads: int
    step: float
    wide: float | None

    @property
    def bandwidth(self) -> float | None:
        """Bytes of weights a second that a decode step reads, if it reads each once; None: the size is not known."""
        return self.size / self.step if self.size else None


def time_passes(backend: Backend, clock: Callable[[], float]) -> dict[int, float]:
    """Seconds of passes over 1 and `WIDE` tokens in slot 0, by width: those that the engine can take.

    `clock`: returns seconds. Raises what the engine raises.

    The shortest of several passes counts, since the first may prepare what later ones use. The slot is read anew for
    each, because an engine may not be able to take tokens back.
    """
    held = max(1, min(_HELD, backend.max_batch_tokens, backend.context_length - WIDE))
    widths = [width for width in (1, WIDE) if width <= min(backend.max_batch_tokens, backend.context_length - held)]
    ids = timing_ids(backend.vocabulary.size, held + WIDE)
    least = dict.fromkeys(widths, float("inf"))
    began = clock()
    for number in range(_ROUNDS):
        if number > 1 and clock() - began > _LIMIT:
            break
        for width in widths:
            backend.extend([Entry(0, 0, ids[:held], held)])
            started = clock()
            wanted = [TopLogitsSpec(1, 1.0, backend.vocabulary.size)]
            backend.extend_top_logits([Entry(0, held, ids[held : held + width], 0)], wanted)
            least[width] = min(least[width], clock() - started)
            backend.release(0)
    return least
