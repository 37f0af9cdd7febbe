"""What a verifier would gain from this machine's drafter, as mode `auto` estimates it before the first token."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drafter_client.draft_sources import DraftModel
from drafter_client.errors import VocabularyMismatch
from drafter_client.options import Mode
from drafter_client.pair import Pair
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.policy.modes.estimate import RateEstimate


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
