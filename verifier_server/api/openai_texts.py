"""Texts for OpenAI's endpoints, by the target alone or with server-side drafting."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal, TypeVar

from starlette.requests import Request

from gateway.openai_api.texts import End, NewTokens, Target, TextRequest
from specpair.engines.vocabulary import Vocabulary
from specpair.http_service.keys.access import Caller
from specpair.protocol.errors import ModeUnavailable, SpecPairError
from specpair.protocol.messages import GenerateRequest, TokenizeRequest
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.round_counts import RoundCounts
from specpair.speculation.text_options import TextSpec
from verifier_server.api.routes import admitted
from verifier_server.generation.generator import Answers, GenerationTask
from verifier_server.service import Service

WAITING_FOR_EACH_SLOT = 4  # texts that may wait, for each one that is generated

T = TypeVar("T")


class VerifierSource:
    """The texts of one verifier; see `TextSource`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def admit(self, request: Request) -> Caller:
        return admitted(request)[1]

    async def read(self, request: Request, parse: Callable[[bytes], T]) -> T:
        return await self._service.bodies.read(request, parse)

    def target(self) -> Target:
        backend = self._service.engine.info
        return Target(
            backend.model_name, backend.vocabulary, backend.context_length, backend.max_drafts, backend.chat_template
        )

    async def encoding(self, work: Callable[[Vocabulary], T]) -> T:
        return await asyncio.to_thread(work, self._service.engine.info.vocabulary)

    async def tokenize(self, request: TokenizeRequest) -> list[int]:
        return await self._service.tokenize(request)

    async def compile_grammar(self, spec: TextSpec, caller: Caller) -> None:
        await self._service.compile_grammar(spec, caller)

    async def open(self, text: TextRequest, caller: Caller) -> "_SessionEvents":
        mode = _mode(text, self._service.loader.loaded().drafting is not None)
        drafts = {"prediction_ids": text.prediction, "draft_n": text.speculative.draft_n} if mode == "fused" else {}
        request = GenerateRequest.of(text.spec, prompt_ids=text.prompt_ids, mode=mode, **drafts)
        request = await self._service.prepared(request, caller)
        return _SessionEvents(self._service, self._service.open_text(request, None, caller))

    def wait_over(self, waited: float) -> SpecPairError | None:
        return None

    def away(self) -> str:
        return ""

    def most_texts(self) -> int:
        models = self._service.loader.loaded()
        slots = models.engine.info.slots
        return slots if models.drafting is None else min(slots, models.drafting.draft.slots)

    def most_waiting(self) -> int:
        return WAITING_FOR_EACH_SLOT * self.most_texts()


class _SessionEvents:
    """The events of one text; see `Events`."""

    def __init__(self, service: Service, text: GenerationTask) -> None:
        self._service, self._text = service, text
        self._answers: Answers | None = None  # None: it has not begun

    @property
    def counts(self) -> RoundCounts:
        return self._text.counts or RoundCounts()

    @property
    def cached_tokens(self) -> int:
        return self._text.session.cached_tokens

    @property
    def prompt_progress(self) -> PromptProgress | None:
        return None if self._answers is None else self._text.engine.prompt_progress(self._text.session)

    def begin(self) -> None:
        if self._answers is None:
            self._answers = self._service.texts.begin(self._text)

    def __aiter__(self) -> AsyncIterator[NewTokens | End]:
        return self._events()

    def stopped(self) -> None:
        self._text.session.stopped = True

    async def aclose(self) -> None:
        if self._answers is not None:
            self._answers.close()
        self._text.leave()
        self._service.texts.forget(self._text.session)  # the client does not know its id

    async def _events(self) -> AsyncIterator[NewTokens | End]:
        self.begin()
        assert self._answers is not None
        while True:
            answer = await self._answers.next(None)
            assert answer is not None
            if answer.tokens:
                details = answer.details
                sources = [mark.source for mark in details.sources]
                yield NewTokens(answer.tokens, details.logprobs, sources, details.decisions)
            if answer.finish_reason is not None:
                self._answers.close()  # before the client knows: its next text may need the place of this session
                yield End(answer.finish_reason)
                return


def _mode(text: TextRequest, has_draft_model: bool) -> Literal["target", "fused"]:
    """The mode of a text. Raises ModeUnavailable for one that this verifier does not offer."""
    asked, drafts = text.speculative.mode, has_draft_model or text.prediction is not None
    if asked == "remote":
        raise ModeUnavailable.at(
            "speculative.mode",
            "remote: no other machine drafts for requests to a verifier: send this one to `drafter serve`, or send "
            "auto, fused or off",
        )
    if drafts:
        return "target" if asked == "off" else "fused"
    for name, given in (("mode", asked if asked == "fused" else None), ("draft_n", text.speculative.draft_n)):
        if given is not None:
            raise ModeUnavailable.at(
                f"speculative.{name}",
                f"{given}: this verifier has no draft model. Start it with VERIFIER_DRAFT_MODEL (or with "
                "VERIFIER_DRAFT_BACKEND=ngram), send a prediction of the text, or leave it out",
            )
    return "target"
