"""What a pair keeps of the model that its verifier serves. It is replaced as a whole when another one answers."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from drafter_client.draft_sources import Drafting
from drafter_client.errors import VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.modes.latency_probe import LatencyProbe
from drafter_client.modes.memory import ModeMemory
from drafter_client.modes.selection import ModeSelection
from drafter_client.options import Mode
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.policy.experience import Experience


@dataclass(frozen=True, slots=True, eq=False)
class Paired:
    """One model of the verifier, the drafters for it, and what texts have taught about both."""

    drafting: Drafting
    # Modes differ in other ways where texts are predicted, and such rates say nothing for other texts.
    selections: dict[bool, tuple[ModeSelection, LatencyProbe]]  # by whether a text has a prediction
    experience: Experience = field(default_factory=Experience)

    @property
    def info(self) -> ModelInfo:
        return self.drafting.info

    @property
    def selection(self) -> ModeSelection:
        """That for texts without a prediction."""
        return self.selections[False][0]

    def modes(self, *, predicted: bool = False) -> list[Mode]:
        """The modes, without `auto`, for a text. `predicted`: whether it has a prediction."""
        return _modes(self.drafting, predicted)

    def without_lost_draft_model(self, mode: Mode, *, predicted: bool) -> Mode:
        """`mode`; but `target` for `fused`, where the verifier has come back without a draft model."""
        return Mode.TARGET if mode is Mode.FUSED and mode not in self.modes(predicted=predicted) else mode


class Pairing:
    """The present `Paired` of one pair. May be used from any thread."""

    def __init__(
        self,
        client: VerifierClient,
        drafting: Drafting,
        link: float,
        memory: ModeMemory | None,
        clock: Callable[[], float],
    ) -> None:
        """`client`: further connections are made from it.
        `link`: the round trip (s).
        `memory`: that of earlier runs.
        `clock`: returns seconds.
        """
        self._client, self._memory, self._clock = client, memory, clock
        self._open = ExitStack()
        self._taking_over = threading.Lock()
        self.refusal: VocabularyMismatch | None = None  # why what the verifier serves now cannot be paired with
        self.present = self._paired(drafting, link)

    def close(self) -> None:
        """Close the connections."""
        self._open.close()

    def checked(self) -> Paired:
        """The present one. If the verifier was seen with a model that does not pair, ask it again.

        Raises VocabularyMismatch while it still serves that.
        """
        return self.present if self.refusal is None else self.take_over(self.present)

    def take_over(self, seen: Paired, *, begun: bool = False) -> Paired:
        """Ask the verifier what it serves now, and return the present one, which is `seen` if that has not changed.

        `begun`: whether a text was begun by the model of `seen`, which an error then says.

        Nothing that was learnt or fetched is kept for another model. Raises VocabularyMismatch if that does not pair,
        and what the client raises.
        """
        with self._taking_over:
            if self.present is seen:  # else another text has just done it
                client = self._client.another()
                with ExitStack() as unless_kept:
                    unless_kept.callback(client.close)
                    info = client.model()
                    if info.identity != seen.info.identity:
                        try:
                            drafting = seen.drafting.anew(client, info)
                        except VocabularyMismatch as error:
                            now, before = f"the verifier at {client.url} serves {info.name} now", seen.info.name
                            self.refusal = VocabularyMismatch(f"{now}, in place of {before}: {error}")
                            if begun:
                                raise VocabularyMismatch(
                                    f"{now}, and the text was begun by {before}: {error}"
                                ) from None
                            raise self.refusal from None
                        self.present = self._paired(drafting, seen.selection.link)
                        self._open.enter_context(unless_kept.pop_all())
                self.refusal = None
            return self.present

    def _paired(self, drafting: Drafting, link: float) -> Paired:
        selections = {}
        for predicted in (False, True):
            selection = ModeSelection(
                _modes(drafting, predicted),
                drafting.info,
                drafting.name,
                link,
                self._clock(),
                None if predicted else self._memory,
                predicted=predicted,
                times=drafting.times,
                shares_cores=drafting.shares_cores,
            )
            probe = LatencyProbe(self._client.another(), selection, self._clock)
            selections[predicted] = selection, self._open.enter_context(closing(probe))
        return Paired(drafting, selections)


def _modes(drafting: Drafting, predicted: bool) -> list[Mode]:
    local = [] if drafting.name is None else [Mode.REMOTE]
    there = [*drafting.info.modes, *([Mode.FUSED] if predicted else [])]
    return local + [mode for mode in (Mode.FUSED, Mode.TARGET) if mode in there]
