"""A pair as a source of texts for OpenAI's endpoints: several at a time, others wait in order."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from secrets import token_bytes
from typing import TypeVar

from starlette.requests import Request

from drafter_client.errors import DrafterError
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.pairing import Paired
from drafter_client.serve.text_events import RETRY_AFTER, PairEvents, UsageCounter, reported
from gateway.openai_api.prompts import check_size
from gateway.openai_api.texts import Target, TextRequest
from specpair.engines.vocabulary import PromptSpan, Vocabulary
from specpair.grammar.turns import GrammarCompiler
from specpair.http_service.keys.access import Caller
from specpair.http_service.keys.gate import Gate
from specpair.http_service.request_bodies import RequestBodies
from specpair.http_service.shutdown import Draining
from specpair.protocol.errors import ModeUnavailable, SpecPairError, VerifierAway
from specpair.protocol.messages import TokenizeRequest
from specpair.speculation.text_options import TextSpec

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

    def stop(self) -> None:
        """Compile no grammar any more, so that no request waits for one."""
        self._grammars.stop()

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
        except DrafterError as error:
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
        counted = UsageCounter(self._gate.accounts, caller, len(text.prompt_ids))
        begin = partial(self._pair.generate, text.prompt_ids, options, identity=text.identity or None, decoded=False)
        return PairEvents(begin, self._threads, counted)

    def _salt(self, caller: Caller, given: str) -> str:
        """The salt of a text at the verifier, for which all callers have the key of this service: callers with other
        keys have other salts. `given`: the caller's own."""
        if not caller.owner:
            return given
        return sha256(b"\0".join((self._secret, caller.owner.encode(), given.encode()))).hexdigest()

    def wait_over(self, waited: float) -> SpecPairError | None:
        """An error once the verifier has been away for as long as a text that has not begun waits for it."""
        outage, patience = self._pair.outage, self._pair.start_patience
        if outage is None or min(waited, outage.seconds) < patience:
            return None
        return VerifierAway(
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
    """The options of a service for the draft tokens of a text. Raises ModeUnavailable for what cannot be had."""
    asked, draft_n, predicted = text.speculative.mode, text.speculative.draft_n, text.prediction is not None
    modes = paired.modes(predicted=predicted)
    if asked is None:
        mode = paired.without_lost_draft_model(options.mode, predicted=predicted)
    elif (mode := _MODES[asked]) not in (*modes, Mode.AUTO):
        raise ModeUnavailable(f"speculative.mode: {asked}: {_MISSING[mode]}", param="speculative.mode")
    options = replace(options, mode=mode, prediction=None if mode is Mode.TARGET else text.prediction)
    if draft_n is None:
        return options
    options = replace(options, draft_n=draft_n)
    if options.settled_mode(modes) is Mode.TARGET:
        raise ModeUnavailable(
            f"speculative.draft_n: {draft_n}: neither this service nor its verifier drafts for this text: leave it "
            "out, or send a mode that drafts",
            param="speculative.draft_n",
        )
    return options
