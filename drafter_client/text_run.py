"""The run of one text of a pair: in its mode, resumed after outages, and told to those who listen."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

from drafter_client.errors import ModelChanged, OtherModel
from drafter_client.generation.events import (
    DraftingFailed,
    Ended,
    Listener,
    ModeChosen,
    ModelTaken,
    VerifierTaken,
    VocabularyTaken,
)
from drafter_client.generation.resuming import Run, released, resuming
from drafter_client.generation.server_written import served
from drafter_client.generation.speculative_decoding import speculate
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Outages
from drafter_client.http.responses import ResponseBounds
from drafter_client.http.several.verifiers import Verifiers
from drafter_client.modes.auto import automatic
from drafter_client.modes.latency_probe import LatencyProbe
from drafter_client.modes.selection import ModeSelection
from drafter_client.options import Mode, Options
from drafter_client.pairing import Paired, Pairing
from specpair.corpus.draft_corpus import DraftCorpora
from specpair.corpus.earlier_texts import EarlierTexts
from specpair.drafters.base import Drafter
from specpair.drafters.custom import FallbackDrafter
from specpair.protocol.errors import FusedUnavailable, InvalidRequest, PromptTooLong, TokenOutOfRange, TooManyDrafts
from specpair.protocol.service_responses import continues
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.drafts.lookups import TokenLookup
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, mechanisms_of

_MOST_CHANGES = 3  # of the verifier's identity without a token between them
# What may come of a request that was made for another model.
_OF_ANOTHER_MODEL = (ModelChanged, FusedUnavailable, InvalidRequest, PromptTooLong, TokenOutOfRange, TooManyDrafts)


@dataclass(slots=True)
class TextRun:
    """What generates one text. `drafter`: of this text; None: nothing is drafted on this machine."""

    client: VerifierClient  # its verifier is that of the text, in any mode
    drafter: Drafter | None
    paired: Paired  # the verifier's model; the next one once that is taken over
    pairing: Pairing  # takes over another model
    pinned: bool  # whether the text must not begin with another model than the first one
    outages: Outages
    verifiers: Verifiers | None  # if there are several
    text: TextSession
    options: Options  # a prediction as token ids
    tell: Listener
    clock: Callable[[], float]  # returns seconds
    corpora: DraftCorpora  # the user's files
    earlier: EarlierTexts  # to which this one is added

    def tokens(self) -> Run:
        """Yield the tokens of the text, and release its session. Raises what the verifier or the drafter raises."""
        with released(self.client, self.text), self.corpora.writing(), ExitStack() as stack:
            stack.callback(lambda: self.earlier.add(self._scope, self.text.known))
            self.tell(VocabularyTaken(self.paired.drafting.vocabulary), self.clock())
            self._tell_verifier()
            if self.options.mode is Mode.AUTO:
                yield from self._automatic()
            else:
                yield from self._begin(self.client, self.options)
            if (failure := self._draft_failure) is not None:
                self.tell(DraftingFailed(failure), self.clock())

    @property
    def _scope(self) -> tuple[str, str]:
        """What earlier texts are looked up within: a text that is measured has a salt of its own."""
        return self.paired.info.vocabulary.ordinary, self.options.cache_salt

    @property
    def _draft_failure(self) -> str | None:
        return self.drafter.failure if isinstance(self.drafter, FallbackDrafter) else None

    @property
    def _bounds(self) -> ResponseBounds:
        target, ends = self.paired.info, frozenset(self.paired.info.vocabulary.ends)
        most = min(target.context_length, len(self.text.prompt_ids) + self.options.max_tokens)
        return ResponseBounds(self.client.url, target.vocabulary.size, most, ends, target.identity, self.options)

    def _automatic(self) -> Run:
        def learnt() -> tuple[ModeSelection, LatencyProbe]:
            return self.paired.selections[self.options.predicted]

        selection = learnt()[0]
        if self.drafter is not None and self.paired.drafting.times is None:
            selection.time_draft_steps(self.drafter, self.text.prompt_ids, self.clock)
        begin, text, options = self._begin, self.text, self.options
        try:
            yield from automatic(self.client, begin, learnt, lambda: self._bounds, text, options, self.tell, self.clock)
        finally:
            # Lockstep, a fixed draft length or a failed draft model would distort the rates for later runs.
            if not options.lockstep_only and options.draft_n is None and self._draft_failure is None:
                learnt()[0].keep()

    def _begin(self, client: VerifierClient, options: Options) -> Run:
        """Begin the text, or a stretch of it, in `options.mode`; without drafts if the verifier comes back without a
        draft model."""
        self._tell_mode(options.mode)
        client.move_to(self.client.address)
        changes, known = 0, 0
        while changes < _MOST_CHANGES:
            attempt = partial(self._attempt, client, options)
            try:
                with client.aborted_by(self.text.stop):
                    yield from resuming(
                        attempt, self.text, lambda: self._bounds, self.tell, client, self.outages, self.clock
                    )
                return
            except OtherModel:  # the others were waited for
                raise
            except _OF_ANOTHER_MODEL as error:
                if not self._goes_on_after(error):
                    return
                changes, known = changes + 1 if len(self.text.known) == known else 1, len(self.text.known)
                mode = self.paired.without_lost_draft_model(options.mode, predicted=options.predicted)
                if mode is not options.mode:
                    options = options.in_mode(mode)
                    self._tell_mode(mode)
        raise ModelChanged(f"the verifier at {client.url} changed its model {_MOST_CHANGES} times without a token")

    def _attempt(self, client: VerifierClient, options: Options) -> Run:
        """An attempt at the text at the verifier of `client`, one of several perhaps. Raises OtherModel if it serves
        another model, and others may go on with the text."""
        written = self._remote if options.mode is Mode.REMOTE else self._served
        if self.verifiers is None:
            yield from written(client, options)
            return
        self._follow(client)
        offered = self.paired.without_lost_draft_model(options.mode, predicted=options.predicted)
        if offered is not options.mode:  # this one has no draft model
            options = options.in_mode(offered)
            self._tell_mode(offered)
        try:
            with closing(written(client, options)) as run:
                for committed in run:
                    self.verifiers.served(client.address)
                    yield committed
        except _OF_ANOTHER_MODEL as error:
            with closing(client.another(alone=True)) as asking:
                info = asking.model()
            if not self.verifiers.serves(client.address, info):
                raise
            raise OtherModel(f"the verifier at {client.address} serves {info.name}: {error}") from error

    def _follow(self, client: VerifierClient) -> None:
        """Take over what is known of the verifier that `client` has moved to."""
        assert self.verifiers is not None
        if client.address == self.paired.address:
            return
        self.client.move_to(client.address)
        before, self.paired = self.paired, self.pairing.at(client.address, *self.verifiers.of(client.address))
        self._tell_verifier()
        if before.info.identity != self.paired.info.identity:
            self._tell_model()

    def _tell_verifier(self) -> None:
        if self.verifiers is not None:
            self.tell(VerifierTaken(str(self.client.address)), self.clock())

    def _tell_model(self) -> None:
        """Tell that the model serves otherwise than before, such as with a smaller context."""
        now = self.paired.info
        needed = len(self.text.prompt_ids) + self.options.max_tokens
        self.tell(ModelTaken(now.name, now.context_length if needed > now.context_length else None), self.clock())

    def _tell_mode(self, mode: Mode) -> None:
        drafting = self.paired.drafting
        name, looks_up = None, False
        if mode is Mode.REMOTE:
            name, looks_up = drafting.name, drafting.looks_up
        elif mode is Mode.FUSED:
            name = drafting.info.draft_model
        self.tell(ModeChosen(mode, name or "", looks_up), self.clock())

    def _goes_on_after(self, error: Exception) -> bool:
        """Take over what the verifier serves now. Returns whether anything is missing in the text.

        Raises `error` if the verifier that is there serves the same as before and has refused the request,
        VocabularyMismatch, and ModelChanged if the text would be another model's.
        """
        before = self.paired.info
        if self.verifiers is not None and (address := self.verifiers.changed(self.client.address)) is not None:
            self.client.move_to(address)
        address, session_id, begun = self.client.address, self.text.session_id, bool(self.text.tokens)
        taken = self.pairing.take_over(self.paired, address=address, session_id=session_id, begun=begun)
        if taken is self.paired:
            if isinstance(error, ModelChanged):  # behind a router, another replica had answered
                return True
            raise error
        now = taken.info
        same = continues(before.identity, now.identity)
        if self.text.tokens:
            why = f"and the text was begun by {before.name}: the rest would be another model's"
        else:
            why = f"and the prompt was made for {before.name}: begin the text again"
            same = not self.pinned and (same or before.vocabulary == now.vocabulary)
        if not same:
            raise ModelChanged(f"the verifier at {self.client.url} serves {now.name} now, {why}") from error
        self.paired = taken
        if self.verifiers is not None:
            self.verifiers.adopt(now)
            self._tell_verifier()
        self._tell_model()
        self.text.check_complete(self._bounds)
        if self.text.finish_reason is not None:
            self.tell(Ended(self.text.finish_reason), self.clock())
        return self.text.finish_reason is None

    def _remote(self, client: VerifierClient, options: Options) -> Run:
        assert self.drafter is not None
        target, drafting = self.paired.info, self.paired.drafting
        corpus = self.corpora.of(drafting.vocabulary)
        experience = self.paired.experience.text(options, target.shared_pass_times)
        with experience as estimates:
            yield from speculate(
                client,
                self.drafter,
                self.text,
                options if options.lookup and not drafting.looks_up else replace(options, lookup=False),
                target,
                self.tell,
                self.clock,
                round_trip=self.paired.selections[self.options.predicted][0].link,
                mechanisms=self._mechanisms(options),
                estimates=estimates,
                vocabulary=drafting.vocabulary,
                corpus=None if corpus is None else corpus.lookup,
                earlier=self._earlier if options.lookup else lambda: None,
            )

    def _earlier(self) -> TokenLookup | None:
        if self.options.strategy not in DRAFTER_INVARIANT:  # the text would depend on them
            return None
        return self.earlier.lookup(self._scope, self.paired.info.vocabulary.size)

    def _mechanisms(self, options: Options) -> Mechanisms:
        if options.lockstep_only:
            return LOCKSTEP
        drafting = self.paired.drafting
        return mechanisms_of(
            shares_cores=drafting.shares_cores,
            self_continue=drafting.info.self_continue,
            may_change_mode=self.options.mode is Mode.AUTO,
        )

    def _served(self, client: VerifierClient, options: Options) -> Run:
        return served(client, self.text, options.generate_request(), self._bounds, self.tell, self.clock)
