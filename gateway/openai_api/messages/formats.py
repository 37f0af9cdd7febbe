"""How the two endpoints that generate texts write their replies: `text_completion` and `chat.completion`."""

from collections.abc import Sequence
from typing import Any, Protocol

from gateway.openai_api.answers.answer import AnswerReason
from gateway.openai_api.answers.chat import deltas_of, message_of
from gateway.openai_api.messages import replies
from gateway.openai_api.messages.replies import Reply
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from gateway.openai_api.output import Delta, TokenPart
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.acceptance.explain import Decision
from specpair.speculation.sampling.logprobs import TokenLogprobs


class Format(Protocol):
    """What one endpoint writes. `common`: the fields that all its replies have."""

    id_prefix: str

    def begin(self, common: dict[str, Any], index: int) -> Reply | None:
        """The first chunk of a choice in a stream; None: there is none."""

    def choices(self, index: int, delta: Delta, reason: AnswerReason | None) -> Sequence[Any]:
        """A choice as it stands in the chunks of a stream, one after the other."""

    def chunk(self, common: dict[str, Any], choice: Any) -> Reply:
        """A chunk of a stream with one of the above."""

    def usage_chunk(self, common: dict[str, Any]) -> Reply:
        """The last chunk, which has the usage and no choice."""

    def whole(self, common: dict[str, Any], choices: Sequence[tuple[Delta, AnswerReason]]) -> Reply:
        """The whole reply."""


class CompletionFormat:
    """`/v1/completions`. `prefixes`: what each choice begins with (`echo`)."""

    id_prefix = "cmpl-"

    def __init__(self, vocabulary: Vocabulary, request: CompletionRequest, prefixes: Sequence[str]) -> None:
        self._vocabulary, self._prefixes, self._details = vocabulary, prefixes, request.token_details
        self._logprobs = request.top_logprobs_wanted is not None

    def begin(self, common: dict[str, Any], index: int) -> Reply | None:
        if not self._prefixes[index]:
            return None
        return self._reply(common, [self._choice(index, Delta(self._prefixes[index]), None)])

    def choices(self, index: int, delta: Delta, reason: AnswerReason | None) -> Sequence[Any]:
        grown = delta.text or delta.tokens or reason is not None
        return [self._choice(index, delta, reason)] if grown else []

    def chunk(self, common: dict[str, Any], choice: Any) -> Reply:
        return self._reply(common, [choice])

    def usage_chunk(self, common: dict[str, Any]) -> Reply:
        return self._reply(common, [])

    def whole(self, common: dict[str, Any], choices: Sequence[tuple[Delta, AnswerReason]]) -> Reply:
        return self._reply(
            common,
            [
                self._choice(at, Delta(self._prefixes[at] + delta.text, delta.tokens), reason)
                for at, (delta, reason) in enumerate(choices)
            ],
        )

    def _reply(self, common: dict[str, Any], choices: list[replies.CompletionChoice]) -> Reply:
        return replies.Completion(object="text_completion", choices=choices, **common)

    def _choice(self, index: int, delta: Delta, reason: AnswerReason | None) -> replies.CompletionChoice:
        logprobs = self._of(delta.tokens) if self._logprobs else None
        told = _told(self._vocabulary, delta.tokens, self._details)
        return replies.CompletionChoice(index=index, text=delta.text, logprobs=logprobs, finish_reason=reason, **told)

    def _of(self, tokens: Sequence[TokenPart]) -> replies.CompletionLogprobs:
        return replies.CompletionLogprobs(
            tokens=[_name(self._vocabulary, token.id) for token in tokens],
            token_logprobs=[token.logprob.logprob for token in tokens if token.logprob is not None],
            top_logprobs=[
                _by_name(self._vocabulary, token.id, token.logprob) for token in tokens if token.logprob is not None
            ],
            text_offset=[token.begin for token in tokens],
        )


class ChatFormat:
    """`/v1/chat/completions`."""

    id_prefix = "chatcmpl-"

    def __init__(self, vocabulary: Vocabulary, request: ChatRequest) -> None:
        self._vocabulary, self._logprobs = vocabulary, request.top_logprobs_wanted is not None
        self._details = request.token_details

    def begin(self, common: dict[str, Any], index: int) -> Reply | None:
        return self.chunk(common, self._choice(index, replies.ChatDelta(role="assistant", content=""), None, None))

    def choices(self, index: int, delta: Delta, reason: AnswerReason | None) -> Sequence[Any]:
        deltas, tokens = deltas_of(delta.events), delta.tokens if self._logprobs or self._details else []
        if reason is not None and (not deltas or deltas[-1].tool_calls):
            deltas.append(replies.ChatDelta())
        elif tokens and not deltas:
            deltas.append(replies.ChatDelta(content=""))
        if not deltas:
            return []
        *others, last = deltas  # what is told once comes with the last one
        before = [self._choice(index, each, None, self._of([])) for each in others]
        return [*before, self._choice(index, last, reason, self._of(tokens), tokens)]

    def chunk(self, common: dict[str, Any], choice: Any) -> Reply:
        return replies.ChatChunk(object="chat.completion.chunk", choices=[choice], **common)

    def usage_chunk(self, common: dict[str, Any]) -> Reply:
        return replies.ChatChunk(object="chat.completion.chunk", choices=[], **common)

    def whole(self, common: dict[str, Any], choices: Sequence[tuple[Delta, AnswerReason]]) -> Reply:
        said = [
            replies.ChatChoice(
                index=at,
                message=message_of(delta.events),
                logprobs=self._of(delta.tokens),
                finish_reason=reason,
                **_told(self._vocabulary, delta.tokens, self._details),
            )
            for at, (delta, reason) in enumerate(choices)
        ]
        return replies.ChatCompletion(object="chat.completion", choices=said, **common)

    def _choice(
        self,
        index: int,
        delta: replies.ChatDelta,
        reason: AnswerReason | None,
        logprobs: replies.ChatLogprobs | None,
        tokens: Sequence[TokenPart] = (),
    ) -> replies.ChatChunkChoice:
        told = _told(self._vocabulary, tokens, self._details)
        return replies.ChatChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=reason, **told)

    def _of(self, tokens: Sequence[TokenPart]) -> replies.ChatLogprobs | None:
        if not self._logprobs:
            return None
        content = [
            replies.TokenLogprob(
                **self._token(token.id),
                logprob=token.logprob.logprob,
                top_logprobs=[
                    replies.TopLogprob(**self._token(each), logprob=value) for each, value in token.logprob.top
                ],
            )
            for token in tokens
            if token.logprob is not None
        ]
        return replies.ChatLogprobs(content=content, refusal=None)

    def _token(self, token: int) -> dict[str, Any]:
        return {"token": _spelled(self._vocabulary, token), "bytes": list(_bytes(self._vocabulary, token))}


def _told(vocabulary: Vocabulary, tokens: Sequence[TokenPart], wanted: str | None) -> dict[str, Any]:
    """What is told of tokens, as a field of a choice; nothing if nothing is wanted. `wanted`: see the request."""
    if wanted is None:
        return {}
    told = []
    for token in tokens:
        source = None if token.source is None else token.source.value
        drafted = None if token.drafted is None else token.drafted.value
        why = {} if wanted == "sources" else {"decision": _decision(vocabulary, token.decision)}
        told.append(replies.ToldToken(id=token.id, text=token.text, source=source, draft_source=drafted, **why))
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
    data = _bytes(vocabulary, token)
    if not data:
        return _by_id(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)


def _by_id(token: int) -> str:
    return f"token_id:{token}"


def _spelled(vocabulary: Vocabulary, token: int) -> str:
    return _bytes(vocabulary, token).decode(errors="replace")


def _bytes(vocabulary: Vocabulary, token: int) -> bytes:
    return vocabulary.pieces[token]
