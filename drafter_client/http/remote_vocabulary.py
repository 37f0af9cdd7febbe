"""The target's vocabulary: compared with that of a draft model, or fetched where that is another one."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from queue import Empty, SimpleQueue
from typing import Any

from drafter_client.errors import BadReply, VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.http.health import IS_IT_ONE
from drafter_client.http.responses import broken_promise, read
from specpair.engines import vocabulary
from specpair.engines.vocabulary import Kind, PromptSpan, Vocabulary
from specpair.protocol.messages import TokenizeRequest, build
from specpair.protocol.service_responses import ModelInfo, TokenizeResponse, VocabularyResponse


def check_vocabulary(client: VerifierClient, ours: Vocabulary, name: str, info: ModelInfo | None = None) -> ModelInfo:
    """The handshake: check that a model with the vocabulary `ours` can draft for the target (see `cannot_draft`).
    Return what the verifier serves, which is `info` if `client.model` was called before.

    `name`: of the draft model, for errors.

    Raises VocabularyMismatch, which names the difference.
    """
    info = info or client.model()
    below = min(ours.size, info.vocabulary.size)
    theirs = info.vocabulary if info.vocabulary.below == below else client.model(below).vocabulary
    mine = ours.fingerprint_below(below)
    differs = vocabulary.difference(mine, theirs)
    refused = None if differs is None else vocabulary.refusal(name, info.name, differs)
    if mine.ordinary != theirs.ordinary:  # perhaps only in ids that one of the two leaves unused
        with closing(RemoteVocabulary(client, info)) as target:
            refused = vocabulary.cannot_draft(name, ours, info.name, target)
    if refused is not None:
        raise VocabularyMismatch(refused)
    return info


def texts_vocabulary(client: VerifierClient, ours: Vocabulary, info: ModelInfo) -> AbstractContextManager[Vocabulary]:
    """A context with the vocabulary that texts are read and written in, which is the target's.

    It is `ours`, the draft model's, if its `text_digest` equals the target's, so that both encode texts alike; else a
    `RemoteVocabulary`.
    `info`: the result of `client.model`.
    """
    told = info.vocabulary
    if told.text != ours.text_digest:
        return closing(RemoteVocabulary(client, info))
    return nullcontext(ours if ours.size == told.size else vocabulary.PaddedVocabulary(ours, told.size))


class RemoteVocabulary(Vocabulary):
    """The target's vocabulary without its model. The bytes and kinds of its tokens are fetched once (some megabytes);
    texts are encoded by the verifier, with a request for each. Thread-safe.

    Raises BadReply if the response is not the vocabulary whose fingerprint `info` gives.
    """

    encodes_here = False

    def __init__(self, client: VerifierClient, info: ModelInfo) -> None:
        """`client`: used by nobody else while a text is encoded."""
        self._client, self._text_digest = client, info.vocabulary.text
        self._idle: SimpleQueue[VerifierClient] = SimpleQueue()  # clients that no text is encoded with
        self._idle.put(client)
        self._added: list[VerifierClient] = []  # for further texts at a time
        where = client.url + "/vocabulary"
        told = read(where, VocabularyResponse, client.call_through_outage("GET", "/vocabulary", None, IS_IT_ONE))
        if len(told.kinds) != len(told.pieces):
            raise broken_promise(where, "kinds must be one digit for each piece")
        pieces, kinds = [each.encode("latin-1") for each in told.pieces], [Kind(int(digit)) for digit in told.kinds]
        super().__init__(pieces, kinds, told.begin, frozenset(told.ends), told.end)
        if self.fingerprint != info.vocabulary:
            raise BadReply(f"the vocabulary that {client.url} sent does not match its fingerprint")

    def close(self) -> None:
        for client in self._added:
            client.close()

    def _idle_client(self) -> VerifierClient:
        try:
            return self._idle.get_nowait()
        except Empty:
            self._added.append(self._client.another())
            return self._added[-1]

    @property
    def text_digest(self) -> str:
        return self._text_digest

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        return self._tokenized({"text": text, "add_begin": add_begin, "parse_control": parse_control})

    def encode_parts(self, parts: Sequence[PromptSpan]) -> list[int]:
        return self._tokenized({"parts": [{"text": text, "parse_control": control} for text, control in parts]})

    def _tokenized(self, fields: dict[str, Any]) -> list[int]:
        wanted = build(TokenizeRequest, fields)
        client = self._idle_client()
        try:
            content = client.call_through_outage("POST", "/tokenize", wanted.body(), IS_IT_ONE)
        finally:
            self._idle.put(client)
        where = self._client.url + "/tokenize"
        ids = read(where, TokenizeResponse, content).token_ids
        if ids and max(ids) >= self.size:
            raise broken_promise(where, f"token_ids holds {max(ids)}, but the vocabulary has {self.size} ids")
        return ids
