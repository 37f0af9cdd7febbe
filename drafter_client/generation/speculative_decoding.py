"""Generates one text by drafter and verifier: prefill, then rounds; yields the committed tokens."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from drafter_client.errors import ConnectionLost, DrafterError, StrategyRefused
from drafter_client.generation.events import Began, Committed, Ended, Listener, Opened, PromptCached, PromptRead
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import STREAM
from drafter_client.http.text_session import ResponseBounds, TextSession
from drafter_client.options import Options
from specpair.drafters.base import Drafter
from specpair.drafters.run.events import Streamed
from specpair.drafters.run.executors import Executor, executor_of
from specpair.drafters.run.reactor import Reactor
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.of_text import processors_of
from specpair.numbers import milliseconds
from specpair.protocol.errors import SpecPairError
from specpair.protocol.responses import StreamEnd, VerifyResponse
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.acceptance.token_sources import forced_before
from specpair.speculation.draft import Draft, TreeLimits
from specpair.speculation.drafting.lookups import Lookups, TokenLookup
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.experience import Estimates, Experience
from specpair.speculation.policy.schedule import LOCKSTEP, UNSAID, Mechanisms, RejectionPolicy


class RemoteConnection:
    """A connection for one session of a verifier; see `specpair.drafters.run.events.VerifierConnection`. Raises
    BadReply, and what the client raises."""

    def __init__(self, client: VerifierClient, session_id: str, bounds: ResponseBounds, *, trees: bool = False) -> None:
        """`bounds`: of the text, to check responses by.
        `trees`: whether the verifier takes trees; else each tree's likeliest chain is sent.
        """
        self._client, self._session_id, self._bounds, self._trees = client, session_id, bounds, trees
        self._aborted = False

    def another(self) -> "RemoteConnection":
        return RemoteConnection(self._client.another(), self._session_id, self._bounds, trees=self._trees)

    def connect(self) -> None:
        with suppress(DrafterError):  # the first request raises the same error
            self._client.connection.connect()

    def verify(self, draft: Draft, policy: RejectionPolicy = UNSAID) -> VerifyResponse:
        response = self._client.verify(self._session_id, draft if self._trees else draft.likeliest(), policy)
        self._bounds.check("/verify", draft.position, response.tokens)
        self._bounds.details("/verify", response.tokens, response)
        return response

    def listen(self, position: int, report: Callable[[Streamed], None]) -> None:
        ended = False

        def follow() -> None:
            nonlocal position, ended
            began = position
            try:
                for event in self._client.stream(self._session_id, position):
                    if isinstance(event, StreamEnd):
                        ended = True
                        report(Streamed.end(position, event.finish_reason))
                        return
                    self._bounds.check(STREAM, event.position, event.tokens)
                    details = self._bounds.details(STREAM, event.tokens, event)
                    position = event.position + len(event.tokens)
                    report(Streamed(event.position, event.tokens, details, None, event.forward))
            except ConnectionLost:
                if position == began:
                    raise
                return  # it broke after it had brought tokens, so a new series of retries begins
            raise ConnectionLost(f"the event stream of {self._client.url} ended before the text did")

        while not (ended or self._aborted):
            self._client.retry_broken_connection(follow)

    def abort(self) -> None:
        self._aborted = True
        self._client.abort()

    def traffic(self) -> tuple[int, int]:
        traffic = self._client.connection.traffic
        return traffic.sent, traffic.received

    def close(self) -> None:
        self._client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeRun:
    """Generates what follows the tokens in `text`, within its session, by a drafter here and a verifier.

    For the strategy `probabilistic` the drafter has to sample its draft tokens from the probabilities that it sends
    (`ModelDrafter(…, draws=True)`); draft tokens without probabilities count as drafted with probability 1.
    """

    client: VerifierClient
    drafter: Drafter
    text: TextSession
    options: Options  # a prediction as token ids
    info: ModelInfo
    tell: Listener
    clock: Callable[[], float]  # returns seconds
    # Of the link, in seconds; None: not known. `LatencyModel.link` begins with it, and the exchanges correct that.
    round_trip: float | None = None
    mechanisms: Mechanisms = field(default_factory=Mechanisms)  # that the pair may use, such as self-continuation
    experience: Experience = field(default_factory=Experience)  # what earlier texts have taught, to which this one adds
    vocabulary: Vocabulary | None = None  # the target's, so that drafts keep to the text's limits; None: they may not
    corpus: Callable[[], TokenLookup] | None = None  # makes the lookup in the user's files; None: there are none
    earlier: Callable[[], TokenLookup | None] = lambda: None  # makes the lookup in earlier texts, if there are any

    def tokens(self) -> Generator[Committed, None, None]:
        """Yield the tokens as they are committed. The caller releases the session.

        If the caller closes the generator early, committed tokens that were not yielded stay in `text.unread`. If
        something fails, they are yielded before the error is raised. Raises StrategyRefused for mechanisms under which
        the text would depend on timing.
        """
        client, text, info, tell, clock = self.client, self.text, self.info, self.tell, self.clock
        mechanisms = self._allowed_mechanisms()
        tell(Began(len(text.prompt_ids)), clock())
        listener = client.another() if mechanisms.self_continue else None
        traffics = [each.connection.traffic for each in (client, listener) if each is not None]
        sent_before, received_before = traffics[0].sent, traffics[0].received
        ended: float | None = None

        def executor() -> Executor:
            connection = RemoteConnection(listener or client, text.session_id, bounds, trees=mechanisms.trees)
            return executor_of(connection, self.drafter, mechanisms)

        limit = min(info.context_length, len(text.prompt_ids) + self.options.max_tokens)
        bounds = ResponseBounds(client.url, info.vocabulary.size, limit, identity=info.identity, spec=self.options)
        preparation = Preparation(self, executor)
        with self.experience.text(self.options, info.shared_pass_times) as estimates:
            try:
                reactor, made, first = self._opened(preparation, bounds, mechanisms, estimates, listener)
                if first.tokens:
                    yield first
                failure: Exception | None = None
                ended_early = partial(made.fail, ConnectionLost("no more of the text is wanted"))
                with text.stop.breaking(ended_early, above=False):
                    while text.finish_reason is None and failure is None:
                        try:
                            reactor.turn(made)
                        except Exception as error:
                            failure = error
                        yield from text.news()
                if failure is not None and text.finish_reason is None:
                    raise failure
                yield from text.news()  # the text may have ended in another thread, before the first turn
                ended = clock()
                reactor.end()
            finally:  # before the estimates are kept, which threads of the executor change
                ended = clock() if ended is None else ended
                sent, received = preparation.close()
                if listener is not None:
                    listener.close()
                text.read = len(text.known)
                sent += sum(each.sent for each in traffics) - sent_before
                received += sum(each.received for each in traffics) - received_before
                tell(Ended(text.finish_reason, sent, received), ended)

    def lookups(self, *, limited: bool = False) -> Lookups:
        """Those of the text. `limited`: drafts keep to what the text may be."""
        options, known, prompt_len = self.options, self.vocabulary if limited else None, len(self.text.prompt_ids)
        return Lookups(
            prompt_len,
            in_text=options.lookup,
            prediction=options.prediction_ids,
            corpus=None if self.corpus is None else self.corpus(),
            earlier=self.earlier(),
            limits=None if known is None else processors_of(options.drawn, known, prompt_len, limits=True),
        )

    def _allowed_mechanisms(self) -> Mechanisms:
        invariant = self.options.strategy in DRAFTER_INVARIANT
        if not invariant and self.mechanisms != LOCKSTEP:
            raise StrategyRefused(
                f"the strategy {self.options.strategy} works in lockstep only: the committed tokens depend on the "
                "draft tokens; with several drafts in flight, or with self-continuation, they would depend on timing"
            )
        return replace(self.mechanisms, trees=self.info.trees and invariant)

    def _opened(
        self,
        preparation: "Preparation",
        bounds: ResponseBounds,
        mechanisms: Mechanisms,
        estimates: Estimates,
        listener: VerifierClient | None,
    ) -> tuple[Reactor, Executor, Committed]:
        """Open the session, and begin to draft. Returns the first tokens, too."""
        client, text, options, tell, clock = self.client, self.text, self.options, self.tell, self.clock
        times = estimates.latencies
        if self.round_trip is not None:
            times.exchanged(self.round_trip, 0.0, 0.0)
        next_in = times.link
        later = {"self_continue": True, "next_in_ms": milliseconds(next_in)} if mechanisms.self_continue else {}
        asked = clock()
        client.connection.when_sent(preparation.begin)  # not before: it would delay the sending by milliseconds
        request = options.request() | later
        try:
            opened = client.prefill(text, request, lambda read: tell(PromptRead(read), clock()), listener)
        except SpecPairError:  # the verifier refused the request: there is no session
            raise
        except BaseException:  # Ctrl-C during a long prefill, for example: the verifier may hold the session
            text.opened = True
            raise
        text.opened = True
        bounds.check_identity(opened.identity)
        now = clock()
        times.exchanged(now - asked, opened.queue, opened.forward)
        executor, lookups = preparation.result()
        position = len(text.known)
        bounds.check("/prefill", position, opened.tokens)
        details = bounds.details("/prefill", opened.tokens, opened)
        text.known += opened.tokens
        text.finish_reason = opened.finish_reason
        controller = SpeculationController(
            text.known,
            bounds.tokens,
            frozenset(self.info.vocabulary.ends),
            estimates,
            self.experience.policy.draft_length(options.draft_n, self.info.max_drafts),
            tree_limits=TreeLimits(self.info.max_tree_leaves, self.info.max_tree_nodes),
            width=self.drafter.width,
            mechanisms=mechanisms,
            lookups=lookups,
            always_send=options.strategy.draws,
        )
        controller.opened(now, next_in, forced_before(details.sources, len(opened.tokens)))
        first = Committed(position, details.sourced(opened.tokens), details)
        tell(Opened(opened, asked), now)
        tell(PromptCached(opened.cached_tokens), now)
        tell(first, now)
        reactor = Reactor(text, controller, tell, clock, explained=options.explain)
        executor.open(len(text.known), reactor.react)
        return reactor, executor, first


class Preparation:
    """Prepares the reactor in a thread during the prefill: an executor's threads and connections take milliseconds,
    and so do the indexes of a long text."""

    def __init__(self, speculation: SpeculativeRun, executor: Callable[[], Executor]) -> None:
        self._speculation, self._executor = speculation, executor
        self._known = list(speculation.text.known)  # the text grows while threads read this
        self._prepared: Future[tuple[Executor, Lookups]] = Future()  # cancelled: nothing is made any more
        self._thread: threading.Thread | None = None  # None: it has not begun

    def begin(self) -> None:
        if self._thread is None and not self._prepared.cancelled():
            self._thread = threading.Thread(target=self._run, name="prepare", daemon=True)
            self._thread.start()

    def result(self) -> tuple[Executor, Lookups]:
        self.begin()
        return self._prepared.result()

    def close(self) -> tuple[int, int]:
        """Close the executor, if there is one. Returns the bytes that it sent and received."""
        # Not begun: what the connection sends next may be another request, or Ctrl-C came while the thread started.
        cancelled = self._prepared.cancel()
        if self._thread is not None and self._thread.is_alive():  # one that was cancelled ends at once
            self._thread.join()
        if cancelled or self._prepared.exception() is not None:
            return 0, 0
        executor, _ = self._prepared.result()
        executor.close()
        return executor.traffic()

    def _run(self) -> None:
        if not self._prepared.set_running_or_notify_cancel():
            return
        try:
            with ExitStack() as stack:
                executor = self._executor()
                stack.callback(executor.close)
                executor.read(self._known, self._speculation.text.read)
                lookups = self._speculation.lookups(limited=True)
                lookups.follow(self._known)
                stack.pop_all()
            self._prepared.set_result((executor, lookups))
        except BaseException as error:  # raised where the result is asked for
            self._prepared.set_exception(error)
