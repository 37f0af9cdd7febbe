"""Generate one text by drafter and verifier: prefill, then the loop; yield the committed tokens."""

import threading
from collections.abc import Callable, Generator
from typing import Any

from drafter_client.errors import StrategyRefused
from drafter_client.generation.executors import Executor, SerialExecutor, ThreadedExecutor
from drafter_client.generation.loop import GenerationLoop
from drafter_client.generation.observer import Committed, Observer
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ResponseBounds
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import first_sources
from drafters.base import Drafter
from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from speculation.drafts.ngram import NgramIndex
from speculation.errors import SpecPairError
from speculation.policy.controller import SpeculationController
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.policy.timing import LatencyModel
from speculation.protocol.responses import PrefillResponse
from speculation.protocol.service_responses import ModelInfo


def speculate(
    client: VerifierClient,
    drafter: Drafter,
    text: TextSession,
    options: dict[str, Any],
    info: ModelInfo,
    stats: Stats,
    clock: Callable[[], float],
    *,
    length: int | None = None,
    mechanisms: Mechanisms = Mechanisms(),
    lookup: bool = False,
    observer: Observer | None = None,
) -> Generator[Committed, None, None]:
    """Generate what follows the tokens in `text`, within its session. The caller releases the session.

    If the caller closes the generator early, committed tokens that were not yielded are left in `text.held_back`. If
    something fails, they are yielded before the error is raised.

    `options`: fields of the prefill request (max_tokens, strategy, …). `info`: the verifier's `/model`. `stats`: filled
    during the run. `clock`: returns seconds. `length`: a fixed number of draft tokens in each verify request; None: the
    controller chooses it. `mechanisms`: what the pair may use, for example self-continuation. `lookup`: also draft by
    prompt lookup, where that is likelier to be accepted than the model's draft. `observer`: receives the events of the
    run.

    For the strategy `probabilistic` the drafter has to sample its draft tokens from the probabilities that it sends
    (`ModelDrafter(…, draws=True)`); draft tokens without probabilities count as drafted with probability 1. Raises
    StrategyRefused for mechanisms under which the text would depend on timing.
    """
    strategy = Strategy(options.get("strategy", Strategy.COUPLED))
    if strategy not in DRAFTER_INVARIANT and mechanisms != LOCKSTEP:
        raise StrategyRefused(
            f"the strategy {strategy} works in lockstep only: the committed tokens depend on the draft tokens; with "
            "several drafts in flight, or with self-continuation, they would depend on timing"
        )
    explained = bool(options.get("explain"))
    began = clock()
    if observer is not None:
        observer.began(1e3 * began)
    sent_before, received_before = client.connection.traffic.sent, client.connection.traffic.received
    executor: Executor = SerialExecutor(client, drafter)
    if mechanisms.overlap:
        executor = ThreadedExecutor(client, drafter, mechanisms.in_flight, mechanisms.self_continue)
    run: GenerationLoop | None = None
    ended: float | None = None
    try:
        times = LatencyModel(info.pass_ms)
        if client.round_trip_ms:
            times.exchanged(client.round_trip_ms, 0.0, 0.0)
        next_in_ms = times.link
        if mechanisms.self_continue:
            options = {**options, "self_continue": True, "next_in_ms": next_in_ms}
        known, at = text.known, len(text.known)
        executor.read(known, text.read)
        text.read = max(text.read, at)
        index = NgramIndex() if lookup else None
        indexing: threading.Thread | None = None
        if index is not None:
            indexing = threading.Thread(target=index.extend, args=(known,), daemon=True)
            indexing.start()  # runs while the verifier reads the prompt
        asked = clock()
        opened = _open(client, text, options)
        if indexing is not None:
            indexing.join()
        now = clock()
        times.exchanged(1e3 * (now - asked), opened.queue_ms, opened.forward_ms)
        limit = info.context_length
        if options.get("max_tokens"):
            limit = min(limit, len(text.prompt_ids) + options["max_tokens"])
        bounds = ResponseBounds(client.url, info.vocabulary.size, limit)
        bounds.check("/prefill", at, opened.tokens)
        tokens = known + opened.tokens
        stats.opened(opened, 1e3 * began, 1e3 * now)
        controller = SpeculationController(
            tokens,
            limit,
            frozenset(info.vocabulary.ends),
            times,
            max_drafts=info.max_drafts,
            width=drafter.width,
            length=length,
            mechanisms=mechanisms,
            next_in_ms=next_in_ms,
            lookup=index,
            always_send=strategy.draws,
            now=1e3 * now,
        )
        decisions = bounds.explained("/prefill", explained, opened.tokens, opened.decisions)
        sources = first_sources(len(opened.tokens))
        first = Committed(list(zip(opened.tokens, sources, strict=True)), decisions)
        if observer is not None:
            observer.opened(opened, 1e3 * asked, 1e3 * now)
            observer.committed(at, first, 1e3 * now)
        run = GenerationLoop(
            controller, executor, bounds, stats, clock, opened.finish_reason, strategy, explained, observer
        )
        executor.open(text.session_id, len(tokens), run.react)
        if opened.tokens:
            yield first
        failure: Exception | None = None
        while run.finish_reason is None and failure is None:
            try:
                run.turn()
            except Exception as error:
                failure = error
            yield from run.news()
        if failure is not None and run.finish_reason is None:
            raise failure
        yield from run.news()
        stats.finish_reason = run.finish_reason
        ended = clock()
        run.settle()
    finally:
        stats.total_ms += 1e3 * ((clock() if ended is None else ended) - began)
        executor.close()
        if run is not None:
            text.held_back.extend(run.news())
            text.read = max(text.read, run.known)
        sent, received = executor.traffic()
        stats.bytes_sent += sent + client.connection.traffic.sent - sent_before
        stats.bytes_received += received + client.connection.traffic.received - received_before


def _open(client: VerifierClient, text: TextSession, options: dict[str, Any]) -> PrefillResponse:
    """Run the prefill; set `text.opened` if the verifier may hold the session afterwards, even after an error."""
    try:
        opened = client.prefill(text, options)
    except SpecPairError:  # the verifier refused the request: there is no session
        raise
    except BaseException:  # Ctrl-C during a long prefill, for example: the verifier may hold the session
        text.opened = True
        raise
    text.opened = True
    return opened
