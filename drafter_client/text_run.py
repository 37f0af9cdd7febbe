"""Runs one text of a pair: in its mode, resumed after outages, its events sent to listeners."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from drafter_client.draft_sources import OpenedSource
from drafter_client.errors import ModelChanged
from drafter_client.generation import events
from drafter_client.generation.resuming import Run, released, resuming
from drafter_client.generation.server_written import served
from drafter_client.generation.speculative_decoding import SpeculativeRun
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Outages
from drafter_client.http.text_session import ResponseBounds, TextSession
from drafter_client.http.verifiers import Verifiers
from drafter_client.modes.auto import LatencyProbe, ModeSelection, automatic
from drafter_client.options import Mode, Options
from drafter_client.pairing import Paired, Pairing
from specpair.corpus.draft_corpus import DraftCorpora
from specpair.corpus.earlier_texts import EarlierTexts
from specpair.drafters.base import NGRAM_LOOKUP, Drafter, NgramDrafter
from specpair.drafters.custom import FallbackDrafter
from specpair.protocol.service_responses import continues
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.drafting.lookups import Lookups, TokenLookup
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, mechanisms_of

_MOST_CHANGES = 3  # of the verifier's identity without a token between them


@dataclass(slots=True, kw_only=True)
class TextRun:
    """Generates one text. `drafter`: of this text; None: nothing is drafted on this machine."""

    client: VerifierClient  # its verifier is that of the text, in any mode
    drafter: Drafter | None
    paired: Paired  # the verifier's model; the next one once that is taken over
    pairing: Pairing  # takes over another model
    pinned: bool  # whether the text must not begin with another model than the first one
    outages: Outages
    verifiers: Verifiers | None  # if there are several
    text: TextSession
    options: Options  # a prediction as token ids
    tell: events.Listener
    clock: Callable[[], float]  # returns seconds
    corpora: DraftCorpora  # the user's files
    earlier: EarlierTexts  # to which this one is added

    @contextmanager
    def tokens(self) -> Iterator[Run]:
        """A context that yields the tokens of the text, and then releases its session. They raise what the verifier or
        the drafter raises."""
        with released(self.client, self.text), ExitStack() as stack:
            stack.callback(lambda: self.earlier.add(self._scope, self.text.known))
            self.tell(events.VocabularyTaken(self.paired.drafting.vocabulary), self.clock())
            self._tell_verifier()
            if self.options.mode is Mode.AUTO:
                run = self._automatic()
                stack.callback(self._keep_measurements)
            else:
                run = self._begin(self.client, self.options)
            with closing(run):
                yield run
            if isinstance(self.drafter, FallbackDrafter) and (context := self.drafter.context_read) is not None:
                self.tell(events.DraftContextRead(context), self.clock())
            if self.text.finish_reason is not None and (failure := self._draft_failure) is not None:
                self.tell(events.DraftingFailed(failure), self.clock())

    @property
    def _scope(self) -> tuple[str, str]:
        """The vocabulary and salt of earlier texts for lookup. A measured text has its own salt."""
        return self.paired.info.vocabulary.ordinary, self.options.cache_salt

    @property
    def _draft_failure(self) -> str | None:
        return self.drafter.failure if isinstance(self.drafter, FallbackDrafter) else None

    def _bounds(self) -> ResponseBounds:
        target, ends = self.paired.info, frozenset(self.paired.info.vocabulary.ends)
        most = min(target.context_length, len(self.text.prompt_ids) + self.options.max_tokens)
        return ResponseBounds(self.client.url, target.vocabulary.size, most, ends, target.identity, self.options)

    def _learnt(self) -> tuple[ModeSelection, LatencyProbe]:
        return self.paired.selections[self.options.predicted]

    def _automatic(self) -> Run:
        if self.drafter is not None and self.paired.drafting.times is None:
            self._learnt()[0].time_draft_steps(self.drafter, self.text.prompt_ids, self.clock)
        return automatic(
            self.client,
            self._begin,
            self._learnt,
            bounds=self._bounds,
            text=self.text,
            options=self.options,
            tell=self.tell,
            clock=self.clock,
            lookups=self._lookups if self.drafter and (self.options.lookup or self.options.predicted) else None,
        )

    def _lookups(self) -> Lookups:
        return self._speculation(self.client, self.options).lookups()

    def _keep_measurements(self) -> None:
        # Lockstep, a fixed draft length or a failed draft model would distort the rates for later runs.
        if self.options.one_mode is None and self._draft_failure is None:
            self._learnt()[0].keep()

    def _begin(self, client: VerifierClient, options: Options, looks_up: bool = False) -> Run:
        """Begin the text, or a stretch of it, in `options.mode`; without drafts if the verifier comes back without a
        draft model. `looks_up`: drafted by lookup alone."""
        self._tell_mode(options.mode, looks_up)
        client.move_to(self.client.address)
        changes, known = 0, 0

        def goes_on_after(error: Exception) -> bool:
            nonlocal options, changes, known
            if not self._goes_on_after(error):
                return False
            changes, known = changes + 1 if len(self.text.known) == known else 1, len(self.text.known)
            mode = self.paired.without_lost_draft_model(options.mode, predicted=options.predicted)
            if mode is not options.mode:
                options = options.in_mode(mode)
                self._tell_mode(mode)
            if changes >= _MOST_CHANGES:
                raise ModelChanged(f"the verifier at {client.url} changed its model {changes} times without a token")
            return True

        return resuming(
            lambda: self._attempt(client, options, looks_up),
            self.text,
            self._bounds,
            tell=self.tell,
            client=client,
            outages=self.outages,
            clock=self.clock,
            goes_on_after=goes_on_after,
        )

    def _attempt(self, client: VerifierClient, options: Options, looks_up: bool) -> Run:
        """Begin an attempt at the text at the verifier of `client`, one of several perhaps."""
        if self.verifiers is not None:
            self._follow(client, self.verifiers)
            offered = self.paired.without_lost_draft_model(options.mode, predicted=options.predicted)
            if offered is not options.mode:  # this one has no draft model
                options = options.in_mode(offered)
                self._tell_mode(offered)
        if options.mode is Mode.REMOTE:
            return self._speculation(client, options, looks_up).tokens()
        return served(client, self.text, options.generate_request(), self._bounds(), self.tell, self.clock)

    def _follow(self, client: VerifierClient, verifiers: Verifiers) -> None:
        """Take over the state of the verifier that `client` has moved to."""
        if client.address == self.paired.address:
            return
        self.client.move_to(client.address)
        before, self.paired = self.paired, self.pairing.at(client.address, *verifiers.of(client.address))
        self._tell_verifier()
        if before.info.identity != self.paired.info.identity:
            self._tell_model()

    def _tell_verifier(self) -> None:
        if self.verifiers is not None:
            self.tell(events.VerifierTaken(str(self.client.address)), self.clock())

    def _tell_model(self) -> None:
        """Report that the model changed, or how it is served, such as a smaller context."""
        now = self.paired.info
        fits = len(self.text.prompt_ids) + self.options.max_tokens <= now.context_length
        self.tell(events.ModelTaken(now.name, None if fits else now.context_length), self.clock())

    def _drafting(self, looks_up: bool) -> OpenedSource:
        """What drafts here. `looks_up`: without the draft model."""
        drafting = self.paired.drafting
        return replace(drafting, name=NGRAM_LOOKUP, looks_up=True, threads=0) if looks_up else drafting

    def _tell_mode(self, mode: Mode, looks_up: bool = False) -> None:
        drafting, here = self._drafting(looks_up), mode is Mode.REMOTE
        name = drafting.name if here else drafting.info.draft_model if mode is Mode.FUSED else None
        self.tell(events.ModeChosen(mode, name or "", here and drafting.looks_up), self.clock())

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
        self.text.check_complete(self._bounds())
        if self.text.finish_reason is not None:
            self.tell(events.Ended(self.text.finish_reason), self.clock())
        return self.text.finish_reason is None

    def _speculation(self, client: VerifierClient, options: Options, looks_up: bool = False) -> SpeculativeRun:
        assert self.drafter is not None
        drafting = self._drafting(looks_up)
        corpus = self.corpora.of(drafting.vocabulary)
        return SpeculativeRun(
            client=client,
            drafter=NgramDrafter() if looks_up else self.drafter,
            text=self.text,
            options=options if options.lookup and not drafting.looks_up else replace(options, lookup=False),
            info=self.paired.info,
            tell=self.tell,
            clock=self.clock,
            round_trip=self._learnt()[0].link,
            mechanisms=self._mechanisms(options, drafting),
            experience=self.paired.lookup_experience if looks_up else self.paired.experience,
            vocabulary=drafting.vocabulary,
            corpus=None if corpus is None else corpus.lookup,
            earlier=self._earlier if options.lookup else lambda: None,
        )

    def _earlier(self) -> TokenLookup | None:
        invariant = self.options.strategy in DRAFTER_INVARIANT  # else the text would depend on earlier texts
        return self.earlier.lookup(self._scope, self.paired.info.vocabulary.size) if invariant else None

    def _mechanisms(self, options: Options, drafting: OpenedSource) -> Mechanisms:
        if options.lockstep_only:
            return LOCKSTEP
        changes = self.options.mode is Mode.AUTO
        alone = drafting.info.self_continue
        return mechanisms_of(shares_cores=drafting.shares_cores, self_continue=alone, may_change_mode=changes)
