"""A pair as a source of texts for OpenAI's endpoints: several at a time, others wait in order. A thread generates the
events of each, which are counted in the usage of its caller's key."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from hashlib import sha256
from secrets import token_bytes
from typing import TypeVar

from starlette.requests import Request

from drafter_client import errors
from drafter_client.generation.generation import Finished, Generation, Token, Tokens
from drafter_client.http.retries import SILENT
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.pairing import Paired
from drafter_client.statistics import Stats
from gateway.openai_api.prompts import check_size
from gateway.openai_api.texts import End, NewTokens, Target, TextRequest
from specpair.engines.errors import BackendError
from specpair.engines.vocabulary import PromptSpan, Vocabulary
from specpair.grammar.turns import GrammarCompiler, stopping
from specpair.http_service.keys.access import Caller
from specpair.http_service.keys.gate import Accounts, Gate
from specpair.http_service.observability.logs import INTERRUPT, log_ended_text
from specpair.http_service.request_bodies import RequestBodies
from specpair.http_service.shutdown import Draining
from specpair.protocol import errors as protocol
from specpair.protocol.messages import TokenizeRequest
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.response_fields import STOP_STRING
from specpair.protocol.terminal_text import one_line
from specpair.speculation.text_options import TextSpec

_log = logging.getLogger("specpair.drafter")
RETRY_AFTER = 5  # seconds until a verifier that is away may be back
_BODY_SECONDS = 10.0  # in which a body must be there, plus one for each 32 KiB of it

_MODES = {"off": Mode.TARGET, "auto": Mode.AUTO, "remote": Mode.REMOTE, "fused": Mode.FUSED}  # as requests name them
_MISSING = {
    Mode.TARGET: "its verifier does not offer it: send auto",
    Mode.REMOTE: "this service has no draft model, as it was started for other modes: start it with --mode auto, or "
    "send auto, fused or off",
    Mode.FUSED: "its verifier has no draft model: start that with VERIFIER_DRAFT_MODEL (or with "
    "VERIFIER_DRAFT_BACKEND=ngram), send a prediction of the text, or send auto, remote or off",
}


T = TypeVar("T")


class PairEvents:
    """The events of one text, which a thread generates, in the account of its caller's key; see `Events`."""

    def __init__(
        self,
        begin: Callable[[], Generation],
        threads: ThreadPoolExecutor,
        accounts: Accounts,
        caller: Caller,
        prompt_tokens: int,
    ) -> None:
        """Raises RateLimited if the key has all the texts that it may have at once."""
        self._account, self._clock = accounts.of(caller.key_name), accounts.clock
        self._account.begin_text(caller.limits, self._clock())
        self._prompt_tokens = prompt_tokens  # those that are not counted yet
        self._begin, self._threads = begin, threads
        self._loop = asyncio.get_running_loop()
        self._came: asyncio.Queue[NewTokens | End | protocol.SpecPairError] = asyncio.Queue()
        self._lock = threading.Lock()
        self._generation: Generation | None = None
        self._closed = self._stopped = self._logged = self._counted = False
        self._failure: protocol.SpecPairError | None = None  # that ended the text
        self._work: asyncio.Future[None] | None = None  # the thread; None: it has not begun

    @property
    def counts(self) -> Stats:
        generation = self._generation
        return Stats() if generation is None else generation.stats

    @property
    def cached_tokens(self) -> int:
        return self.counts.cached_tokens

    @property
    def prompt_progress(self) -> PromptProgress | None:
        return self.counts.prompt_progress

    def begin(self) -> None:
        if self._work is None:
            context = copy_context()  # that of the request, which metrics and logs name
            self._work = asyncio.wrap_future(self._threads.submit(context.run, self._generate))

    def __aiter__(self) -> AsyncIterator[NewTokens | End]:
        return self._events()

    def stopped(self) -> None:
        self._stopped = True

    async def aclose(self) -> None:
        with self._lock:
            self._closed = True
            generation = self._generation
        if generation is not None:
            generation.wait_no_more()
            await asyncio.to_thread(generation.close)  # waits for the request that is under way
        if self._work is not None:
            await self._work
        self._count_end()
        if not self._logged and generation is not None:  # an earlier call may have been cancelled before
            self._logged = True
            self._log(generation.stats)

    def _count_end(self) -> None:
        if not self._counted:
            self._counted, now = True, self._clock()
            self._account.count(now, drafted=self.counts.drafted, accepted=self.counts.accepted)
            self._account.end_text(now)

    def _log(self, stats: Stats) -> None:
        failure = None if self._stopped else self._failure
        ended_by = STOP_STRING if self._stopped else stats.finish_reason or ("error" if failure else INTERRUPT)
        counts = stats.prompt_tokens, stats.generated_tokens, stats.working_time, stats.drafted, stats.accepted
        reason = one_line(failure.message) if failure else ""
        modes = dict.fromkeys(turn.mode for turn in stats.turns)  # in mode auto, those that it took
        log_ended_text(*counts, mode=", ".join(modes) or stats.mode, ended_by=ended_by, reason=reason)

    async def _events(self) -> AsyncIterator[NewTokens | End]:
        self.begin()
        while True:
            event = await self._came.get()
            if isinstance(event, protocol.SpecPairError):
                self._failure = event
                raise event
            if isinstance(event, NewTokens):
                self._account.count(self._clock(), prompt=self._prompt_tokens, generated=len(event.tokens))
                self._prompt_tokens = 0
            else:  # counted before the client knows, and may ask for the next text
                self._count_end()
            yield event
            if isinstance(event, End):
                return

    def _generate(self) -> None:
        """Generate the text. Runs in a thread of its own."""
        try:
            if self._closed:
                return
            generation = self._begin()  # without the lock, for which the event loop would wait: it may ask the verifier
            with self._lock:
                self._generation = generation
                if self._closed:
                    return
            for event in generation:
                if isinstance(event, Tokens):
                    self._tell(_piece(event))
                elif isinstance(event, Finished):
                    self._tell(End("stop" if event.finish_reason == "stop" else "length"))
                    return
            self._tell(stopping())  # only a closed text and a pair that ends its texts leave out the end
        except (protocol.SpecPairError, errors.DrafterError, BackendError) as error:
            self._tell(reported(error))
        except Exception as error:  # a fault must end the text, not the wait for it
            _log.exception("generating a text failed")
            self._tell(protocol.InternalError(f"a fault of the drafter ({type(error).__name__}): see its log"))

    def _tell(self, event: NewTokens | End | protocol.SpecPairError) -> None:
        with suppress(RuntimeError):  # the event loop has ended, and nobody reads any more
            self._loop.call_soon_threadsafe(self._came.put_nowait, event)


def _piece(event: Tokens) -> NewTokens:
    columns = zip(*event.tokens, strict=True) if event.tokens else [()] * len(Token._fields)
    ids, _, sources, decisions, logprobs, drafted = columns
    return NewTokens([*ids], logprobs, sources, decisions, drafted)


def reported(error: protocol.SpecPairError | errors.DrafterError | BackendError) -> protocol.SpecPairError:
    """The error of a text as the endpoints report it."""
    if isinstance(error, (*SILENT, protocol.BadGateway)):
        return protocol.VerifierAway(str(error), retry_after=RETRY_AFTER)
    if isinstance(error, protocol.SpecPairError):
        return error
    if isinstance(error, errors.VocabularyMismatch):
        return protocol.ModelMismatch(str(error), retry_after=RETRY_AFTER)
    if isinstance(error, errors.ModelChanged):
        return protocol.TargetChanged(f"{error}. Send the request again", retry_after=1)
    if isinstance(error, (errors.BadOption, errors.BadPrompt)):
        return protocol.InvalidRequest(str(error))
    return protocol.EngineError(str(error))


class PairSource:
    """The texts of one pair; see `TextSource`. Used in the event loop."""

    def __init__(
        self,
        pair: Pair,
        options: Options,
        texts: int,
        queue: int,
        *,
        max_body_bytes: int,
        draining: Draining,
        gate: Gate,
    ) -> None:
        """`texts`: how many are generated at a time, not more than the pair can; `queue`: how many may wait."""
        self._texts, self._queue = texts, queue
        self._secret = token_bytes(32)  # so that no other client of the verifier can guess the salts
        self._pair, self._options = pair, options
        self._draining, self._gate = draining, gate
        self._bodies = RequestBodies(max_body_bytes, _BODY_SECONDS, lambda: pair.target.context_length)
        self._grammars = GrammarCompiler()
        self._threads = ThreadPoolExecutor(texts, thread_name_prefix="text")
        self._stopped = False

    def stop(self) -> None:
        """End all texts, also those that wait, and the compiling of grammars, with ShuttingDown."""
        self._stopped = True
        self._grammars.stop()
        self._pair.wait_no_more()
        self._pair.end_texts()

    def close(self) -> None:
        """Wait for the threads. Close the pair before, so that its texts end."""
        self._threads.shutdown()

    def admit(self, request: Request) -> Caller:
        return self._gate.admit(request)

    async def read(self, request: Request, parse: Callable[[bytes], T]) -> T:
        return await self._bodies.read(request, parse)

    def target(self) -> Target:
        paired = self._pair.paired
        if (refusal := self._pair.refusal) is not None:
            raise reported(refusal)
        target, vocabulary = paired.info, paired.drafting.vocabulary
        limits = target.context_length, target.max_drafts
        return Target(target.name, vocabulary, *limits, target.chat_template, target.identity)

    async def encoding(self, work: Callable[[Vocabulary], T]) -> T:
        try:
            return await asyncio.to_thread(work, self._pair.vocabulary)
        except errors.DrafterError as error:
            raise reported(error) from error

    async def tokenize(self, request: TokenizeRequest) -> list[int]:
        target, text = self.target(), request.text or ""
        if request.parts is not None:
            parts = [PromptSpan(each.text, each.parse_control) for each in request.parts]
            check_size("parts", sum(len(part.text.encode()) for part in parts), target)
            return await self.encoding(lambda vocabulary: vocabulary.encode_parts(parts))
        check_size("text", len(text.encode()), target)
        begin, control = request.add_begin, request.parse_control
        return await self.encoding(lambda vocabulary: vocabulary.encode(text, add_begin=begin, parse_control=control))

    async def compile_grammar(self, spec: TextSpec, caller: Caller) -> None:
        await self._grammars.compile(spec, self.target().vocabulary, caller.client)

    async def open(self, text: TextRequest, caller: Caller) -> PairEvents:
        self._draining.check_new_text()
        room = self._pair.target.context_length - len(text.prompt_ids)
        options = drafted(self._options, text, self._pair.paired).with_spec(
            text.spec,
            max_tokens=room if text.spec.max_tokens is None else text.spec.max_tokens,
            cache_salt=self._salt(caller, text.spec.cache_salt),
        )
        begin = partial(self._pair.generate, text.prompt_ids, options, identity=text.identity or None, decoded=False)
        return PairEvents(begin, self._threads, self._gate.accounts, caller, len(text.prompt_ids))

    def _salt(self, caller: Caller, given: str) -> str:
        """The salt of a text at the verifier, which sees this service's key for all callers: each key has salts of its
        own. `given`: the caller's salt."""
        if not caller.owner:
            return given
        return sha256(b"\0".join((self._secret, caller.owner.encode(), given.encode()))).hexdigest()

    def wait_over(self, waited: float) -> protocol.SpecPairError | None:
        """An error once an outage exceeds the patience of a text that has not begun, or the service stops."""
        if self._stopped:
            return stopping()
        outage, patience = self._pair.outage, self._pair.start_patience
        if outage is None or min(waited, outage.seconds) < patience:
            return None
        return protocol.VerifierAway(
            f"the verifier is away ({outage.why}), and this text has waited {waited:.0f} s for its turn",
            retry_after=RETRY_AFTER,
        )

    def away(self) -> str:
        outage = self._pair.outage
        return "" if outage is None else f"the verifier is away for {outage.seconds:.0f} s: {outage.why}"

    def most_texts(self) -> int:
        return self._texts

    def most_waiting(self) -> int:
        return self._queue


def drafted(options: Options, text: TextRequest, paired: Paired) -> Options:
    """The options of one text, with its drafting request. Raises ModeUnavailable if that cannot be met."""
    asked, draft_n, predicted = text.speculative.mode, text.speculative.draft_n, text.prediction is not None
    modes = paired.modes(predicted=predicted)
    if asked is None:
        mode = paired.without_lost_draft_model(options.mode, predicted=predicted)
    elif (mode := _MODES[asked]) not in (*modes, Mode.AUTO):
        raise protocol.ModeUnavailable(f"speculative.mode: {asked}: {_MISSING[mode]}", param="speculative.mode")
    options = replace(options, mode=mode, prediction=None if mode is Mode.TARGET else text.prediction)
    if draft_n is None:
        return options
    options = replace(options, draft_n=draft_n)
    if options.settled_mode(modes) is Mode.TARGET:
        raise protocol.ModeUnavailable(
            f"speculative.draft_n: {draft_n}: neither this service nor its verifier drafts for this text: leave it "
            "out, or send a mode that drafts",
            param="speculative.draft_n",
        )
    return options
