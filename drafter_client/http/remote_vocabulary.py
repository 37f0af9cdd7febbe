"""The verifier's vocabulary, for drafters without a vocabulary of their own."""

import json
import threading

from backends.vocabulary import Kind, Vocabulary
from drafter_client.errors import BadReply
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ModelInfo

_KINDS = {str(int(kind)): kind for kind in Kind}
_TOO_OLD = (
    "this verifier is too old for --backend ngram and --translate: update it, or draft with a model of its family"
)


class RemoteVocabulary(Vocabulary):
    """Bytes and classes of the tokens are fetched once (some megabytes); the verifier encodes texts.

    Raises BadReply when the response is not the vocabulary whose fingerprint the verifier gives.
    """

    def __init__(self, client: VerifierClient, info: ModelInfo) -> None:
        """`info`: the result of `client.model`."""
        self._client = client
        self._asking = threading.Lock()  # several texts at once may translate their drafts
        reply = client.fields("/vocabulary", client.call_through_outages("GET", "/vocabulary", None, _TOO_OLD))
        pieces, kinds = reply.byte_strings("pieces"), reply.text("kinds")
        if len(kinds) != len(pieces) or not set(kinds) <= _KINDS.keys():
            raise reply.wrong("kinds", "is not one digit for each of the pieces")
        begin, ends = reply.id_or_null("begin", len(pieces)), reply.ids("ends", len(pieces))
        super().__init__(pieces, [_KINDS[kind] for kind in kinds], begin, frozenset(ends))
        if self.fingerprint != info.vocabulary:
            raise BadReply(f"the vocabulary that {client.url} sent is not the one that it names")

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        wanted = {"text": text, "add_begin": add_begin, "parse_control": parse_control}
        with self._asking:
            reply = self._client.call_through_outages("POST", "/tokenize", json.dumps(wanted).encode(), _TOO_OLD)
        return self._client.fields("/tokenize", reply).ids("token_ids", self.size)
