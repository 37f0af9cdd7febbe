"""The target's vocabulary: compared with that of a draft model, or fetched for drafters without that vocabulary."""

import json
import threading

from backends.vocabulary import Kind, Vocabulary, difference, first_difference, refusal
from drafter_client.errors import BadReply, VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ModelInfo

_KINDS = {str(int(kind)): kind for kind in Kind}
_TOO_OLD = (
    "this verifier is too old for --backend ngram and --translate: update it, or draft with a model of its family"
)


def check_vocabulary(client: VerifierClient, ours: Vocabulary, name: str, info: ModelInfo | None = None) -> ModelInfo:
    """The handshake: check that token ids mean the same in the draft model's vocabulary `ours` as in the target's.
    Return what the verifier serves.

    `name`: of the draft model, for errors. `info`: the result of `client.model`, if it was called before. Raises
    VocabularyMismatch, which names the difference.
    """
    info = info or client.model()
    below = min(ours.size, info.vocabulary.size)
    theirs = info.vocabulary if info.vocabulary.below == below else client.model(below).vocabulary
    differs = difference(ours.fingerprint_below(below), theirs)
    if differs is not None:
        if ours.fingerprint_below(below).ordinary != theirs.ordinary:
            differs += f": {_first_difference(client, ours, below)}"
        raise VocabularyMismatch(refusal(name, info.name, differs))
    return info


def _first_difference(client: VerifierClient, ours: Vocabulary, below: int) -> str:
    """Describe the first token id that differs, found by bisection over the fingerprints of the ids below a bound, in
    about 17 small requests."""
    same, different = 0, below
    while different - same > 1:
        middle = (same + different) // 2
        if client.model(middle).vocabulary.ordinary == ours.fingerprint_below(middle).ordinary:
            same = middle
        else:
            different = middle
    return first_difference(ours, same)


class RemoteVocabulary(Vocabulary):
    """The target's vocabulary without its model. The bytes and kinds of its tokens are fetched once (some megabytes);
    texts are encoded by the verifier, with a request for each.

    Raises BadReply if the response is not the vocabulary whose fingerprint `info` gives.
    """

    def __init__(self, client: VerifierClient, info: ModelInfo) -> None:
        """`info`: the result of `client.model`."""
        self._client = client
        self._asking = threading.Lock()  # several texts at once may translate their drafts
        reply = client.fields("/vocabulary", client.call_through_outage("GET", "/vocabulary", None, _TOO_OLD))
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
            reply = self._client.call_through_outage("POST", "/tokenize", json.dumps(wanted).encode(), _TOO_OLD)
        return self._client.fields("/tokenize", reply).ids("token_ids", self.size)
