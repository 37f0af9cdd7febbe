"""How long a model's passes take on this machine, and what a verifier would gain from its drafter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drafter_client.draft_sources import DraftModel
from drafter_client.errors import VocabularyMismatch
from drafter_client.options import Mode
from drafter_client.pair import Pair
from specpair.engines.backend import Backend, Entry, TopLogitsSpec, timing_ids
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.policy.modes.estimate import RateEstimate

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


@dataclass(frozen=True, slots=True)
class Gain:
    """`round_trip`, `step`: seconds; `step` is that of the draft model here. `rates`: tokens a second by mode.
    `refusal`: why this machine cannot draft; empty: it can.
    """

    url: str
    target: ModelInfo
    round_trip: float
    draft: str | None
    step: float | None
    shares_cores: bool
    rates: Mapping[Mode, RateEstimate]
    refusal: str = ""

    def ratio(self, mode: Mode) -> float | None:
        """The likely rate of a mode divided by that of the target alone; None: the verifier offers no such mode."""
        alone = self.rates.get(Mode.TARGET)
        return self.rates[mode].likely / alone.likely if alone and mode in self.rates else None

    @property
    def best(self) -> Mode:
        """The mode of the highest likely rate."""
        return max(self.rates, key=lambda mode: self.rates[mode].likely)


def gain(
    url: str,
    source: DraftModel,
    *,
    api_key: str | None,
    memory: Path | None,
    on_wait: Callable[[float | None], None] | None = None,
) -> Gain:
    """Pair with the verifier at `url`, without a text. Where the vocabularies differ, nothing drafts here.

    `memory`: measured acceptance rates of earlier texts; None: one is assumed.
    `on_wait`: as in `Pair`.

    Raises SpecPairError, DrafterError or BackendError.
    """

    def paired(draft: DraftModel | None) -> Pair:
        return Pair(url, draft, api_key=api_key, branches=1, memory=memory, patience=0.0, on_wait=on_wait)

    try:
        with paired(source) as pair:
            return _told(url, pair)
    except VocabularyMismatch as error:
        refusal = str(error)
    with paired(None) as pair:
        return _told(url, pair, refusal)


def _told(url: str, pair: Pair, refusal: str = "") -> Gain:
    drafting, selection = pair.paired.drafting, pair.paired.selection
    return Gain(
        url=url,
        target=pair.target,
        round_trip=selection.link,
        draft=drafting.name,
        step=None if drafting.times is None else drafting.times.token,
        shares_cores=drafting.shares_cores,
        rates=selection.rates,
        refusal=refusal,
    )
