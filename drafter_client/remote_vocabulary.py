"""The verifier's vocabulary, for drafters that have none of their own."""

import json

from backends.vocabulary import Kind, Vocabulary
from drafter_client.client import VerifierClient
from drafter_client.errors import BadReply
from drafter_client.replies import ModelInfo


class RemoteVocabulary(Vocabulary):
    """Bytes and classes are fetched once (some megabytes for a large one); texts are encoded by the verifier.

    Raises BadReply when what comes is not the vocabulary that the verifier names.
    """

    def __init__(self, client: VerifierClient, info: ModelInfo) -> None:
        """`info`: what the client's `model` has said."""
        self._client = client
        body = client.call("GET", "/vocabulary", None)
        with client.promised("/vocabulary"):
            pieces = [piece.encode("latin-1") for piece in body["pieces"]]
            kinds = [Kind(int(kind)) for kind in body["kinds"]]
            super().__init__(pieces, kinds, body["begin"], frozenset(body["ends"]))
        if len(kinds) != len(pieces) or self.fingerprint != info.vocabulary:
            raise BadReply(f"the vocabulary that {client.url} sent is not the one that it names")

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        wanted = {"text": text, "add_begin": add_begin, "parse_control": parse_control}
        reply = self._client.call("POST", "/tokenize", json.dumps(wanted).encode())
        with self._client.promised("/tokenize"):
            return [int(token) for token in reply["token_ids"]]
