"""How long passes of a draft model take, measured when it is loaded: to draft a token, and to read one."""

from collections.abc import Callable
from dataclasses import dataclass

from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.timing_ids import timing_ids
from specpair.speculation.policy.cost_by_width import LEAST

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
