"""Generates one text by drafter and verifier: prefill, then rounds; yields the committed tokens."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from drafter_client.errors import ConnectionLost, StrategyRefused
from drafter_client.generation.events import Began, Committed, Ended, Listener, Opened, PromptCached, PromptRead
from drafter_client.generation.lane import RemoteLane
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ResponseBounds
from drafter_client.options import Options
from specpair.drafters.base import Drafter
from specpair.drafters.run.executors import Executor, executor_of
from specpair.drafters.run.reactor import Reactor
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.of_text import processors_of
from specpair.protocol.errors import SpecPairError
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.responses import PrefillResponse
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.acceptance.token_source import forced_before
from specpair.speculation.draft import TreeLimits
from specpair.speculation.drafts.lookups import Lookups, TokenLookup
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What the reactor needs beside the prefill's reply."""

    executor: Executor
    lookups: Lookups


def speculate(
    client: VerifierClient,
    drafter: Drafter,
    text: TextSession,
    options: Options,
    info: ModelInfo,
    tell: Listener,
    clock: Callable[[], float],
    *,
    round_trip: float | None = None,
    mechanisms: Mechanisms = Mechanisms(),
    estimates: Estimates | None = None,
    vocabulary: Vocabulary | None = None,
    corpus: Callable[[], TokenLookup] | None = None,
    earlier: Callable[[], TokenLookup | None] = lambda: None,
) -> Generator[Committed, None, None]:
    """Generate what follows the tokens in `text`, within its session. The caller releases the session.

    If the caller closes the generator early, committed tokens that were not yielded stay in `text.unread`. If something
    fails, they are yielded before the error is raised.

    `options`: of the text, a prediction as token ids.
    `info`: the verifier's `/model`.
    `tell`: takes the events of the run.
    `clock`: returns seconds.
    `round_trip`: seconds, of the link; None: not known. The exchanges of this text then correct the estimate that
        begins with it (`LatencyModel.link`).
    `mechanisms`: what the pair may use, for example self-continuation.
    `estimates`: what earlier texts have taught, to which this text adds; None: nothing.
    `vocabulary`: of the target, so that draft tokens keep to what limits the text; None: they may not.
    `corpus`: makes the lookup in the user's files; None: there are none.
    `earlier`: makes the lookup in earlier texts, if there are any.

    For the strategy `probabilistic` the drafter has to sample its draft tokens from the probabilities that it sends
    (`ModelDrafter(…, draws=True)`); draft tokens without probabilities count as drafted with probability 1. Raises
    StrategyRefused for mechanisms under which the text would depend on timing.
    """
    if options.strategy not in DRAFTER_INVARIANT and mechanisms != LOCKSTEP:
        raise StrategyRefused(
            f"the strategy {options.strategy} works in lockstep only: the committed tokens depend on the draft tokens; "
            "with several drafts in flight, or with self-continuation, they would depend on timing"
        )
    mechanisms = replace(mechanisms, trees=info.trees and options.strategy in DRAFTER_INVARIANT)
    tell(Began(len(text.prompt_ids)), clock())
    listener = client.another() if mechanisms.self_continue else None
    traffics = [each.connection.traffic for each in (client, listener) if each is not None]
    sent_before, received_before = traffics[0].sent, traffics[0].received
    ended: float | None = None

    def executor() -> Executor:
        lane = RemoteLane(listener or client, text.session_id, bounds, trees=mechanisms.trees)
        return executor_of(lane, drafter, mechanisms)

    known = list(text.known)  # read by threads while the prefill's tokens are appended to the text
    preparation = Preparation(executor, known, text, options, vocabulary, corpus, earlier)
    estimates = estimates or Estimates.untaught(info.shared_pass_times)
    times = estimates.latencies
    limit = min(info.context_length, len(text.prompt_ids) + options.max_tokens)
    bounds = ResponseBounds(client.url, info.vocabulary.size, limit, identity=info.identity, spec=options)
    try:
        if round_trip is not None:
            times.exchanged(round_trip, 0.0, 0.0)
        next_in = times.link
        later = {"self_continue": True, "next_in_ms": 1e3 * next_in} if mechanisms.self_continue else {}
        asked = clock()
        client.connection.when_sent(preparation.begin)  # not before: it would delay the sending by milliseconds
        request = options.request() | later
        opened = _open(client, text, request, lambda progress: tell(PromptRead(progress), clock()), listener)
        bounds.check_identity(opened.identity)
        now = clock()
        times.exchanged(now - asked, opened.queue, opened.forward)
        prepared = preparation.result()
        bounds.check("/prefill", len(known), opened.tokens)
        details = bounds.details("/prefill", opened.tokens, opened)
        text.known += opened.tokens
        text.finish_reason = opened.finish_reason
        controller = SpeculationController(
            text.known,
            limit,
            frozenset(info.vocabulary.ends),
            estimates,
            DraftLength(options.draft_n, info.max_drafts),
            tree_limits=TreeLimits(info.max_tree_leaves, info.max_tree_nodes),
            width=drafter.width,
            mechanisms=mechanisms,
            lookups=prepared.lookups,
            always_send=options.strategy.draws,
        )
        controller.opened(now, next_in, forced_before(details.sources, len(opened.tokens)))
        first = Committed(len(known), details.sourced(opened.tokens), details)
        tell(Opened(opened, asked), now)
        tell(PromptCached(opened.cached_tokens), now)
        tell(first, now)
        reactor = Reactor(text, controller, tell, clock, explained=options.explain)
        prepared.executor.open(len(text.known), reactor.react)
        if opened.tokens:
            yield first
        failure: Exception | None = None
        ended_early = partial(prepared.executor.fail, ConnectionLost("no more of the text is wanted"))
        with text.stop.breaking(ended_early, above=False):
            while text.finish_reason is None and failure is None:
                try:
                    reactor.turn(prepared.executor)
                except Exception as error:
                    failure = error
                yield from text.news()
        if failure is not None and text.finish_reason is None:
            raise failure
        yield from text.news()
        ended = clock()
        reactor.end()
    finally:
        ended = clock() if ended is None else ended
        sent, received = preparation.close()
        if listener is not None:
            listener.close()
        text.read = len(text.known)
        sent += sum(each.sent for each in traffics) - sent_before
        received += sum(each.received for each in traffics) - received_before
        tell(Ended(text.finish_reason, sent, received), ended)


class Preparation:
    """Makes, in a thread, what the prefill need not wait for: an executor's threads and connections take milliseconds,
    and so do the indexes of a long text."""

    def __init__(
        self,
        executor: Callable[[], Executor],
        known: list[int],
        text: TextSession,
        options: Options,
        vocabulary: Vocabulary | None = None,
        corpus: Callable[[], TokenLookup] | None = None,
        earlier: Callable[[], TokenLookup | None] = lambda: None,
    ) -> None:
        """`known`: the text so far. The others as for `speculate`."""
        self._executor, self._known, self._text, self._options = executor, known, text, options
        self._vocabulary, self._corpus, self._earlier = vocabulary, corpus, earlier
        self._prepared: Future[_Prepared] = Future()  # cancelled: nothing is made any more
        self._thread: threading.Thread | None = None  # None: it has not begun

    def begin(self) -> None:
        """Begin, if it has not begun and is not closed."""
        if self._thread is None and not self._prepared.cancelled():
            self._thread = threading.Thread(target=self._run, name="prepare", daemon=True)
            self._thread.start()

    def result(self) -> _Prepared:
        """Wait for the result. Raises the error that it failed with."""
        self.begin()
        return self._prepared.result()

    def close(self) -> tuple[int, int]:
        """Close the executor, if there is one. Returns the bytes that it sent and received."""
        # Not begun: what the connection sends next may be another request, or Ctrl-C came while the thread started.
        cancelled = self._prepared.cancel()
        if self._thread is not None and self._thread.is_alive():  # one that was cancelled ends at once
            self._thread.join()
        if cancelled:
            return 0, 0
        if self._prepared.exception() is not None:
            return 0, 0
        executor = self._prepared.result().executor
        executor.close()
        return executor.traffic()

    def _run(self) -> None:
        if not self._prepared.set_running_or_notify_cancel():
            return
        try:
            with ExitStack() as stack:
                executor = self._executor()
                stack.callback(executor.close)
                executor.read(self._known, self._text.read)
                options, prompt_len, limits = self._options, len(self._text.prompt_ids), None
                if self._vocabulary is not None:
                    limits = processors_of(options.drawn, self._vocabulary, prompt_len, limits=True)
                lookups = Lookups(
                    prompt_len,
                    in_text=options.lookup,
                    prediction=options.prediction_ids,
                    corpus=None if self._corpus is None else self._corpus(),
                    earlier=self._earlier(),
                    limits=limits,
                )
                lookups.follow(self._known)
                stack.pop_all()
            self._prepared.set_result(_Prepared(executor, lookups))
        except BaseException as error:  # raised where the result is asked for
            self._prepared.set_exception(error)


def _open(
    client: VerifierClient,
    text: TextSession,
    options: dict[str, Any],
    on_read: Callable[[PromptProgress], None],
    listener: VerifierClient | None,
) -> PrefillResponse:
    """Run the prefill; set `text.opened` if the verifier may hold the session afterwards, even after an error."""
    try:
        opened = client.prefill(text, options, on_read, listener)
    except SpecPairError:  # the verifier refused the request: there is no session
        raise
    except BaseException:  # Ctrl-C during a long prefill, for example: the verifier may hold the session
        text.opened = True
        raise
    text.opened = True
    return opened
