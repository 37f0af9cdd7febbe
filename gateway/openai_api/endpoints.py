"""OpenAI's endpoints, for one source of texts."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from gateway.openai_api.answer import PLAIN, AnswerForm
from gateway.openai_api.answer_form import answer_form_of, calling_style, kept_to, of_tools
from gateway.openai_api.generation import GenerationSpec, TextGeneration, reply_to
from gateway.openai_api.messages import replies
from gateway.openai_api.messages.objects import read_request
from gateway.openai_api.messages.options import Speculative
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from gateway.openai_api.prompts import Prompts, check_bias, check_draft_n, check_model, check_size
from gateway.openai_api.text_queue import QueuedText, TextQueue
from gateway.openai_api.texts import Target, TextRequest, TextSource
from gateway.openai_api.tools.styles import Style
from gateway.openai_api.writers import ChatWriter, CompletionWriter
from specpair.http_service.keys.access import Caller
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import InvalidRequest

R = TypeVar("R", CompletionRequest, ChatRequest)
_OF_ANTHROPIC = "anthropic-version"  # a header that requests of Anthropic's API have
_AT_ONCE = 4  # prompts of a request that are encoded, as that may be a request to a far verifier for each


class Endpoints:
    """The endpoints as methods, which raise SpecPairError. Close them with the application."""

    def __init__(self, source: TextSource, style: Style | None = None, *, keep_lines: bool = False) -> None:
        """`style`: how the model writes calls of tools; None: as its chat template shows.
        `keep_lines`: as for `Prompts`.
        """
        self._source, self._style = source, style
        self._began = int(time.time())
        self.prompts = Prompts(source, keep_lines=keep_lines)
        self.places = TextQueue(source.most_texts, source.most_waiting, time.monotonic, source.wait_over)

    def close(self) -> None:
        """End the process that renders chat templates."""
        self.prompts.close()

    async def list_models(self, request: Request) -> Response:
        """The model that is served."""
        self._source.admit(request)
        model = self._model(request)
        page = {"has_more": False, "first_id": model.id, "last_id": model.id} if _is_anthropic(request) else {}
        return JsonReply(replies.ModelList(object="list", data=[model], **page).json_bytes())

    async def retrieve_model(self, request: Request) -> Response:
        """The model that is served, if the path names it."""
        self._source.admit(request)
        check_model(request.path_params["model"].removesuffix("/") or "/", self._source.target())
        return JsonReply(self._model(request).json_bytes())

    async def complete(self, request: Request) -> Response:
        """Continue one or several prompts: JSON, or server-sent events with `stream`."""
        began, caller = time.monotonic(), self._source.admit(request)
        message = await self._read(CompletionRequest, request)
        given = message.prompts()
        names = ["prompt"] if len(given) == 1 else [f"prompt.{at}" for at in range(len(given))]

        async def texts() -> TextGeneration:
            target = self._target(message.model)
            how = partial(self._prompt, target, message)
            prompts: list[tuple[list[int], str]] = []
            for at in range(0, len(given), _AT_ONCE):
                group = zip(names[at : at + _AT_ONCE], given[at : at + _AT_ONCE], strict=True)
                prompts += await asyncio.gather(*(how(*each) for each in group))
            prefixes = [text for _, text in prompts for _ in range(message.choices)]
            return await self._texts(message, target, [ids for ids, _ in prompts], caller, began, prefixes=prefixes)

        return await reply_to(bool(message.stream), texts, partial(CompletionWriter, request=message))

    async def chat(self, request: Request) -> Response:
        """Answer a conversation: JSON, or server-sent events with `stream`."""
        began, caller = time.monotonic(), self._source.admit(request)
        message = await self._read(ChatRequest, request)
        streamed = bool(message.stream)
        texts = partial(self.answers, message, caller, began, streamed)
        return await reply_to(streamed, texts, partial(ChatWriter, request=message))

    async def answers(
        self, message: ChatRequest, caller: Caller, began: float, streamed: bool, opening: str = ""
    ) -> TextGeneration:
        """The answers to a conversation.

        `began`: when the request came, of `time.monotonic`.
        `streamed`: whether the client gets them as they grow.
        `opening`: what they go on from.
        """
        target = self._target(message.model)
        parts = await self.prompts.rendered(message, target, opening)
        answer = answer_form_of(message, target, parts[:-1] if opening else parts, self._style, whole=not streamed)
        if opening and answer.begun:
            raise InvalidRequest(
                "messages: the last one is the assistant's, and the chat template of this model begins thoughts there: "
                "switch these off, or end with a message of the user's",
                param="messages",
            )
        keeps = await kept_to(message, answer, target, calling_style(target, self._style))
        prompt = await self.prompts.of_parts(parts, target)
        try:
            return await self._texts(message, target, [prompt], caller, began, answer=answer, keeps=keeps)
        except InvalidRequest as error:
            raise of_tools(error, message) if "grammar" in keeps else error from None

    async def _read(self, schema: type[R], request: Request) -> R:
        """The request in the body.

        Raises Overloaded before it is read at all: the less a refusal costs, the more is left for the texts.
        """
        self.places.check()
        return await self._source.read(request, partial(read_request, schema))

    def _model(self, request: Request) -> replies.Model:
        target, also = self._source.target(), dict[str, Any]()
        if _is_anthropic(request):
            created = datetime.fromtimestamp(self._began, UTC).isoformat()
            also = {"type": "model", "display_name": target.name, "created_at": created, "lifecycle": "active"}
            also |= {"max_input_tokens": target.context_length, "max_tokens": target.context_length}
        return replies.Model(
            id=target.name,
            object="model",
            created=self._began,
            owned_by="specpair",
            max_model_len=target.context_length,
            **also,
        )

    def _target(self, name: str | None) -> Target:
        """The target. Raises UnknownModel if a request names another model."""
        target = self._source.target()
        check_model(name, target)
        return target

    async def _prompt(
        self, target: Target, message: CompletionRequest, name: str, given: str | list[int]
    ) -> tuple[list[int], str]:
        """The ids of a prompt, and what the reply begins with."""
        if message.suffix:
            ids = await self.prompts.of_gap(name, given, message.suffix, target)
        else:
            ids = await self.prompts.of_text(name, given, target, control=message.parse_special is not False)
        if not message.echo:
            return ids, ""
        return ids, given if isinstance(given, str) else target.vocabulary.decode(given).decode(errors="replace")

    async def _texts(
        self,
        message: CompletionRequest | ChatRequest,
        target: Target,
        prompts: Sequence[list[int]],
        caller: Caller,
        began: float,
        *,
        prefixes: Sequence[str] = (),
        answer: AnswerForm = PLAIN,
        keeps: Mapping[str, Any] = MappingProxyType({}),
    ) -> TextGeneration:
        prediction = None
        if message.prediction is not None:
            text = message.prediction.text
            check_size("prediction", len(text.encode()), target)
            prediction = await self._source.encoding(lambda vocabulary: vocabulary.encode(text, add_begin=False))
        check_bias(message.bias, len(prompts) * message.choices, target)
        speculative = message.speculative or Speculative()
        check_draft_n(speculative.draft_n, target)
        wanted = [
            TextRequest(ids, spec, prediction, target.identity, speculative)
            for ids in prompts
            for spec in message.specs(keeps)
        ]
        spec = GenerationSpec(
            target.name,
            target.vocabulary,
            message.stops,
            sum(map(len, prompts)),
            message.choices,
            prefixes,
            answer=answer,
            thoughts=not isinstance(message, ChatRequest) or message.shows_thoughts,
            of_calls=partial(of_tools, message=message)
            if "grammar" in keeps and isinstance(message, ChatRequest)
            else None,
            away=self._source.away,
        )
        texts = await self._open(wanted, caller)
        return TextGeneration(spec, texts, began)

    async def _open(self, wanted: Sequence[TextRequest], caller: Caller) -> list[QueuedText]:
        self.places.check()
        await self._source.compile_grammar(wanted[0].spec, caller)  # of all of them
        texts = self.places.enter(len(wanted), caller.client)
        try:
            for at, (text, each) in enumerate(zip(texts, wanted, strict=True)):
                if at:
                    await asyncio.sleep(0)  # a hundred texts must not hold up other requests
                # It begins now: the first token takes longer than the beginning of the reply.
                text.open(await self._source.open(each, caller))
        except BaseException:
            for text in texts:
                await text.aclose()
            raise
        return texts


def _is_anthropic(request: Request) -> bool:
    return _OF_ANTHROPIC in request.headers
