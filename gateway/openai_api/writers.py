"""Writes the replies of OpenAI's two endpoints that generate texts, whole and in chunks."""

import secrets
import string
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from gateway.openai_api.answer import AnswerReason
from gateway.openai_api.generation import TextGeneration, Writer
from gateway.openai_api.messages import replies
from gateway.openai_api.messages.errors import FORM
from gateway.openai_api.messages.replies import Reply
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from gateway.openai_api.output import Delta, TokenPart, joined
from gateway.openai_api.tools.reader import AnswerEvent, ArgumentsGrew, CallBegan, CallEnded, Content, Thought
from specpair.engines.vocabulary import Vocabulary
from specpair.http_service.replies.events import event_bytes
from specpair.protocol.errors import SpecPairError
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.sampling.distribution import TokenLogprobs

DONE = b"data: [DONE]\n\n"
_CHARACTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9  # characters: the templates of some models, Mistral's, take no others


class _ChunkWriter(Writer):
    """Base of both writers."""

    id_prefix: ClassVar[str]
    chunk: ClassVar[Callable[..., Reply]]  # of a stream
    reply: ClassVar[Callable[..., Reply]]

    def __init__(self, generation: TextGeneration, request: ChatRequest | CompletionRequest) -> None:
        super().__init__(generation)
        self._request = request
        self._id, self._created = self.id_prefix + uuid.uuid4().hex, int(time.time())
        self._logprobs, self._details = request.top_logprobs_wanted is not None, request.token_details
        self._kept: list[list[Delta]] = [[] for _ in generation.texts]
        self._reasons: list[AnswerReason] = ["length"] * len(generation.texts)

    def begin(self) -> Iterator[bytes]:
        for at in range(len(self.generation.texts)):
            if (first := self._first(at)) is not None:
                yield self._chunk([first])

    def take(self, at: int, delta: Delta, reason: AnswerReason | None) -> Iterator[bytes]:
        request, choices = self._request, self._choices(at, delta, reason)
        for number, choice in enumerate(choices, 1):
            told = dict[str, Reply]()
            if request.continuous_usage:
                told = {"usage": self.generation.usage()}
            elif number == len(choices) and not self.generation.open and not request.include_usage:
                told = self.generation.statistics()
            yield self._chunk([choice], told)

    def end(self) -> Iterator[bytes]:
        if self._request.include_usage:  # with the statistics: Open WebUI adds up the tokens of all chunks with any
            yield self._chunk([], {"usage": self.generation.usage()} | self.generation.statistics())
        yield DONE

    def failed(self, error: SpecPairError) -> Iterator[bytes]:
        yield FORM.last_event(error)

    def keep(self, at: int, delta: Delta, reason: AnswerReason | None) -> None:
        self._kept[at].append(delta)
        self._reasons[at] = reason or self._reasons[at]

    def whole(self) -> Reply:
        texts = zip(map(joined, self._kept), self._reasons, strict=True)
        choices = [self._text(at, delta, reason) for at, (delta, reason) in enumerate(texts)]
        return self.reply(
            choices=choices, **self._common, usage=self.generation.usage(), **self.generation.statistics()
        )

    @property
    def _vocabulary(self) -> Vocabulary:
        return self.generation.spec.vocabulary

    @property
    def _common(self) -> dict[str, Any]:
        """The fields that all replies and chunks have."""
        return {"id": self._id, "created": self._created, "model": self.generation.spec.model}

    def _chunk(self, choices: list[Any], told: dict[str, Reply] | None = None) -> bytes:
        fields: dict[str, Any] = self._common | ({"usage": None} if self._request.include_usage else {}) | (told or {})
        return event_bytes(self.chunk(choices=choices, **fields).json_bytes())

    @abstractmethod
    def _first(self, at: int) -> Any:
        """A choice in the first chunk of a text; None: it has none."""

    @abstractmethod
    def _choices(self, at: int, delta: Delta, reason: AnswerReason | None) -> Sequence[Any]:
        """The choices of a delta, for successive chunks of a stream."""

    @abstractmethod
    def _text(self, at: int, delta: Delta, reason: AnswerReason) -> Any:
        """A choice of the whole reply."""


class CompletionWriter(_ChunkWriter):
    """`/v1/completions`."""

    id_prefix = "cmpl-"
    chunk = reply = staticmethod(partial(replies.Completion, object="text_completion"))

    def _first(self, at: int) -> replies.CompletionChoice | None:
        return self._text(at, Delta(), None) if self._prefix(at) else None

    def _choices(self, at: int, delta: Delta, reason: AnswerReason | None) -> Sequence[replies.CompletionChoice]:
        return [self._choice(at, delta, reason)] if delta.text or delta.tokens or reason is not None else []

    def _text(self, at: int, delta: Delta, reason: AnswerReason | None) -> replies.CompletionChoice:
        return self._choice(at, Delta(self._prefix(at) + delta.text, delta.tokens), reason)

    def _prefix(self, at: int) -> str:
        """The text's beginning (`echo`)."""
        return "".join(self.generation.spec.prefixes[at : at + 1])

    def _choice(self, index: int, delta: Delta, reason: AnswerReason | None) -> replies.CompletionChoice:
        logprobs = completion_logprobs(self._vocabulary, delta.tokens) if self._logprobs else None
        told = _token_details(self._vocabulary, delta.tokens, self._details)
        return replies.CompletionChoice(index=index, text=delta.text, logprobs=logprobs, finish_reason=reason, **told)


class ChatWriter(_ChunkWriter):
    """`/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    chunk = staticmethod(partial(replies.ChatChunk, object="chat.completion.chunk"))
    reply = staticmethod(partial(replies.ChatCompletion, object="chat.completion"))

    def _first(self, at: int) -> replies.ChatChunkChoice:
        begun = replies.ChatDelta(role="assistant", content="")
        told = _token_details(self._vocabulary, (), self._details)
        return replies.ChatChunkChoice(index=at, delta=begun, logprobs=None, finish_reason=None, **told)

    def _choices(self, at: int, delta: Delta, reason: AnswerReason | None) -> Sequence[replies.ChatChunkChoice]:
        deltas = [each for each in map(_delta, delta.events) if each is not None]
        tokens = delta.tokens if self._logprobs or self._details else []
        if reason is not None and (not deltas or deltas[-1].tool_calls):
            deltas.append(replies.ChatDelta())
        elif tokens and not deltas:
            deltas.append(replies.ChatDelta(content=""))
        if not deltas:
            return []
        *others, last = deltas  # what is told once comes with the last one
        before = [replies.ChatChunkChoice(index=at, delta=each, finish_reason=None, **self._of(())) for each in others]
        return [*before, replies.ChatChunkChoice(index=at, delta=last, finish_reason=reason, **self._of(tokens))]

    def _text(self, at: int, delta: Delta, reason: AnswerReason) -> replies.ChatChoice:
        return replies.ChatChoice(
            index=at, message=message_of(delta.events), finish_reason=reason, **self._of(delta.tokens)
        )

    def _of(self, tokens: Sequence[TokenPart]) -> dict[str, Any]:
        """Token fields of a choice."""
        logprobs = None
        if self._logprobs:
            logprobs = replies.ChatLogprobs(content=token_logprobs(self._vocabulary, tokens), refusal=None)
        return {"logprobs": logprobs} | _token_details(self._vocabulary, tokens, self._details)


def call_id() -> str:
    """A new id for a call."""
    return "".join(secrets.choice(_CHARACTERS) for _ in range(_ID_LENGTH))


def message_of(events: Iterable[AnswerEvent]) -> replies.AssistantMessage:
    """The message of these events. All calls must be whole."""
    thoughts, content, calls = "", "", list[tuple[CallBegan, list[str]]]()
    for event in events:
        match event:
            case Thought(text):
                thoughts += text
            case Content(text):
                content += text
            case CallBegan():
                calls.append((event, []))
            case ArgumentsGrew(_, text):
                calls[-1][1].append(text)
    called = [_called(call, "".join(arguments)) for call, arguments in calls]
    beside: dict[str, Any] = {"reasoning_content": thoughts} if thoughts else {}
    if called:
        beside["tool_calls"] = called
    said = None if called and not content else content
    return replies.AssistantMessage(role="assistant", content=said, refusal=None, **beside)


def _called(call: CallBegan, text: str) -> replies.CalledTool:
    if call.free:
        return replies.CalledTool(id=call_id(), type="custom", custom=replies.CalledText(name=call.name, input=text))
    function = replies.CalledFunction(name=call.name, arguments=text)
    return replies.CalledTool(id=call_id(), type="function", function=function)


def _delta(event: AnswerEvent) -> replies.ChatDelta | None:
    match event:
        case Thought(text):
            return replies.ChatDelta(reasoning_content=text)
        case Content(text):
            return replies.ChatDelta(content=text)
        case CallBegan(index, name, free):
            begun: dict[str, Any] = {"index": index, "id": call_id(), "type": "custom" if free else "function"}
            new = _growth("", free, name=name)
            return replies.ChatDelta(tool_calls=[replies.ToolDelta(**begun, **new)])
        case ArgumentsGrew(index, text, free):
            return replies.ChatDelta(tool_calls=[replies.ToolDelta(index=index, **_growth(text, free))])
        case CallEnded():
            return None


def _growth(text: str, free: bool, **name: str) -> dict[str, Any]:
    """What a call has grown by."""
    if free:
        return {"custom": replies.CalledText(input=text, **name)}
    return {"function": replies.FunctionDelta(arguments=text, **name)}


def token_logprobs(vocabulary: Vocabulary, tokens: Sequence[TokenPart]) -> list[replies.TokenLogprob]:
    """Log probabilities, in the form of chats and responses."""

    def named(token: int) -> dict[str, Any]:
        return {"token": _spelled(vocabulary, token), "bytes": list(vocabulary.pieces[token])}

    return [
        replies.TokenLogprob(
            **named(token.id),
            logprob=token.logprob.logprob,
            top_logprobs=[replies.TopLogprob(**named(each), logprob=value) for each, value in token.logprob.top],
        )
        for token in tokens
        if token.logprob is not None
    ]


def completion_logprobs(vocabulary: Vocabulary, tokens: Sequence[TokenPart]) -> replies.CompletionLogprobs:
    """The same in completions' form."""
    known = [(token.id, token.logprob) for token in tokens if token.logprob is not None]
    return replies.CompletionLogprobs(
        tokens=[_name(vocabulary, token.id) for token in tokens],
        token_logprobs=[logprob.logprob for _, logprob in known],
        top_logprobs=[_by_name(vocabulary, token, logprob) for token, logprob in known],
        text_offset=[token.begin for token in tokens],
    )


def _token_details(vocabulary: Vocabulary, tokens: Sequence[TokenPart], wanted: str | None) -> dict[str, Any]:
    """The field `token_details` of a choice; empty without a request. `wanted`: the request's."""
    if wanted is None:
        return {}
    told = []
    for token in tokens:
        source = None if token.source is None else token.source.value
        drafted = None if token.drafted is None else token.drafted.value
        why = {} if wanted == "sources" else {"decision": _decision(vocabulary, token.decision)}
        told.append(replies.TokenInfo(id=token.id, text=token.text, source=source, draft_source=drafted, **why))
    return {"token_details": told}


def _decision(vocabulary: Vocabulary, why: Decision | None) -> replies.DecisionDetails | None:
    if why is None:
        return None
    draft = None if why.draft is None else _spelled(vocabulary, why.draft)
    return replies.DecisionDetails(p=why.p, draft=draft, draft_p=why.draft_p, q=why.q, verdict=why.verdict)


def _by_name(vocabulary: Vocabulary, drawn: int, logprob: TokenLogprobs) -> dict[str, float]:
    """The likeliest tokens and the one that was drawn, each under a name of its own."""
    names = {_name(vocabulary, drawn): drawn}
    for token, _ in logprob.top:
        names.setdefault(_name(vocabulary, token), token)
    found = {
        name if names[name := _name(vocabulary, token)] == token else _by_id(token): value
        for token, value in logprob.top
    }
    return found | {_name(vocabulary, drawn): logprob.logprob}


def _name(vocabulary: Vocabulary, token: int) -> str:
    """A token as completions name it: its text; for a part of a character its bytes, as OpenAI writes them."""
    data = vocabulary.pieces[token]
    if not data:
        return _by_id(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)


def _by_id(token: int) -> str:
    return f"token_id:{token}"


def _spelled(vocabulary: Vocabulary, token: int) -> str:
    return vocabulary.pieces[token].decode(errors="replace")
