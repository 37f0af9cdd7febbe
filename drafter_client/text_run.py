"""The run of one text of a pair: in its mode, resumed after outages, and told to those who listen."""

from collections.abc import Callable
from dataclasses import dataclass

from drafter_client.draft_sources import Drafting
from drafter_client.generation.events import DraftingFailed, Listener, ModeChosen
from drafter_client.generation.resuming import Run, released, resuming
from drafter_client.generation.server_written import served
from drafter_client.generation.start import speculate
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Outages
from drafter_client.http.responses import ResponseBounds
from drafter_client.modes.auto import automatic
from drafter_client.modes.selection import ModeSelection
from drafter_client.options import Mode, Options
from drafters.base import Drafter
from drafters.fallback import FallbackDrafter
from speculation.policy.experience import Experience
from speculation.policy.schedule import LOCKSTEP, Mechanisms


@dataclass(frozen=True, slots=True)
class TextRun:
    """What generates one text. `drafter`: of this text; None: nothing is drafted on this machine."""

    client: VerifierClient
    drafter: Drafter | None
    drafting: Drafting
    selection: ModeSelection  # of the pair, whose link it knows, for texts with a prediction or without
    probe: Callable[[], None]  # measures the link if that is due
    experience: Experience  # of the pair's texts
    outages: Outages
    text: TextSession
    options: Options
    prediction: list[int] | None  # token ids of `Options.prediction`
    tell: Listener
    clock: Callable[[], float]  # returns seconds

    def tokens(self) -> Run:
        """Yield the tokens of the text, and release its session. Raises what the verifier or the drafter raises."""
        with released(self.client, self.text):
            if self.options.mode is Mode.AUTO:
                yield from self._automatic()
            else:
                yield from self._begin(self.client, self.options)
            if (failure := self._draft_failure) is not None:
                self.tell(DraftingFailed(failure), 1e3 * self.clock())

    @property
    def _draft_failure(self) -> str | None:
        return self.drafter.failure if isinstance(self.drafter, FallbackDrafter) else None

    @property
    def _bounds(self) -> ResponseBounds:
        target = self.drafting.info
        most = min(target.context_length, len(self.text.prompt_ids) + self.options.max_tokens)
        return ResponseBounds(self.client.url, target.vocabulary.size, most, frozenset(target.vocabulary.ends))

    def _automatic(self) -> Run:
        if self.drafter is not None:
            self.selection.time_draft_steps(self.drafter, self.text.prompt_ids, self.clock)
        begin, text, options = self._begin, self.text, self.options
        try:
            yield from automatic(
                self.client, begin, self.selection, self.probe, self._bounds, text, options, self.tell, self.clock
            )
        finally:
            # Lockstep, a fixed draft length or a failed draft model would distort the rates for later runs.
            if not options.lockstep_only and options.draft_n is None and self._draft_failure is None:
                self.selection.keep()

    def _begin(self, client: VerifierClient, options: Options) -> Run:
        """Begin the text, or a stretch of it, in `options.mode`."""
        drafting = self.drafting
        name, looks_up = None, False
        if options.mode is Mode.REMOTE:
            name, looks_up = drafting.name, drafting.looks_up
        elif options.mode is Mode.FUSED:
            name = drafting.info.draft_model
        self.tell(ModeChosen(options.mode, name or "", looks_up), 1e3 * self.clock())

        def attempt() -> Run:
            return (self._remote if options.mode is Mode.REMOTE else self._served)(client, options)

        return resuming(attempt, self.text, self._bounds, self.tell, client, drafting.info, self.outages, self.clock)

    def _remote(self, client: VerifierClient, options: Options) -> Run:
        assert self.drafter is not None
        target = self.drafting.info
        experience = self.experience.text(options.strategy, options.threshold, options.sampling, target.pass_ms)
        with experience as estimates:
            yield from speculate(
                client,
                self.drafter,
                self.text,
                options.request(),
                target,
                self.tell,
                self.clock,
                round_trip_ms=self.selection.link_ms,
                length=options.draft_n,
                mechanisms=LOCKSTEP if options.lockstep_only else Mechanisms(self_continue=target.self_continue),
                lookup=options.lookup and not self.drafting.looks_up,
                prediction=self.prediction,
                estimates=estimates,
            )

    def _served(self, client: VerifierClient, options: Options) -> Run:
        request = options.request() | {"mode": str(options.mode)}
        if options.mode is Mode.FUSED and options.draft_n is not None:
            request["draft_n"] = options.draft_n
        if options.mode is Mode.FUSED and self.prediction is not None and self.drafting.info.predictions:
            request["prediction_ids"] = self.prediction
        return served(client, self.text, request, self._bounds, self.tell, self.clock)
