"""The handshake: checks that token ids mean the same at both ends, and reports the first difference."""

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest

from backends.scripted import ORDER, ByteVocabulary, Script, ScriptedBackend
from drafter_client.errors import VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import check_vocabulary
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Logits
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import Faulty
from tests.drafter_client.support import PROMPT, Verifier, generate, plain, serving


def _bytes_but(**changes: object) -> Vocabulary:
    """The toy vocabulary with other attributes."""
    vocabulary = ByteVocabulary()
    for name, value in changes.items():
        setattr(vocabulary, name, value)
    return vocabulary


def _pieces_with(token: int, piece: bytes) -> list[bytes]:
    pieces = ByteVocabulary().pieces
    return [*pieces[:token], piece, *pieces[token + 1 :]]


@pytest.mark.parametrize("size", [258, 300, 4096])
def test_the_same_vocabulary_is_accepted_with_any_padding(verifier: Verifier, size: int) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        assert check_vocabulary(client, ByteVocabulary(size), "draft").name == "scripted-1"
    padded = ScriptedBackend(Script(vocabulary_size=size))
    with serving(padded) as larger, closing(VerifierClient(larger.url)) as client:
        assert check_vocabulary(client, ByteVocabulary(), "draft").vocabulary.size == size


@pytest.mark.parametrize("token", [0, 65, 254, 255])
def test_a_foreign_vocabulary_is_refused_with_the_first_different_id(verifier: Verifier, token: int) -> None:
    foreign = _bytes_but(pieces=_pieces_with(token, b"foreign"))
    with closing(VerifierClient(verifier.url)) as client, pytest.raises(VocabularyMismatch) as caught:
        check_vocabulary(client, foreign, "llama-draft")
    assert str(caught.value) == (
        "llama-draft cannot draft for scripted-1: token ids below 258 stand for different bytes (sizes 258 and 258): "
        f"the first is id {token}, b'foreign' in the draft model. Choose a draft model of the target's own family"
    )


@pytest.mark.parametrize("filler", [False, True])
def test_the_vocabulary_is_fetched_only_where_fingerprints_differ(verifier: Verifier, filler: bool) -> None:
    """Ids that the draft model leaves unused are no difference."""
    kinds = [Kind.UNUSED if filler and token == 100 else kind for token, kind in enumerate(ByteVocabulary().kinds)]
    with closing(Faulty()) as transport:
        check_vocabulary(VerifierClient(verifier.url, transport=transport), _bytes_but(kinds=kinds), "draft")
        assert transport.asked == ["/model", *(["/vocabulary"] if filler else [])]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"begin": None}, "the begin-of-text id is None here and 256 there"),
        ({"begin": 7}, "the begin-of-text id is 7 here and 256 there"),
        ({"ends": frozenset({256, 257})}, r"the end-of-text ids are \[256, 257\] here and \[257\] there"),
        ({"ends": frozenset()}, r"the end-of-text ids are \[\] here and \[257\] there"),
    ],
)
def test_different_begin_and_end_ids_are_refused_by_name(
    verifier: Verifier, changes: dict[str, object], words: str
) -> None:
    with closing(VerifierClient(verifier.url)) as client, pytest.raises(VocabularyMismatch, match=words):
        check_vocabulary(client, _bytes_but(**changes), "draft")


def test_different_control_tokens_are_accepted(verifier: Verifier) -> None:
    kinds = [Kind.CONTROL if token == 5 else kind for token, kind in enumerate(ByteVocabulary().kinds)]
    pieces = _pieces_with(256, b"<start>")
    with closing(VerifierClient(verifier.url)) as client:
        check_vocabulary(client, _bytes_but(pieces=pieces), "draft")
        with pytest.raises(VocabularyMismatch):  # ordinary in the target, a control token here
            check_vocabulary(client, _bytes_but(kinds=kinds), "draft")


class _Wide(ScriptedBackend):
    """A target that generates an id beyond the toy vocabulary at every fourth position, and has bytes for it."""

    def __init__(self) -> None:
        super().__init__(Script(seed=1, vocabulary_size=300))
        self.vocabulary.pieces[258:] = [b"wide"] * 42
        self.vocabulary.kinds[258:] = [Kind.ORDINARY] * 42

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        logits = super().logits_after(tokens)
        if len(tokens) % ORDER == 0:
            logits[258 + int(np.argmax(logits)) % 42] = 100.0
        return logits


def test_ids_that_only_the_target_has_do_not_stop_the_drafter() -> None:
    with serving(_Wide()) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter_backend = ScriptedBackend(Script(seed=1))
        info = check_vocabulary(client, drafter_backend.vocabulary, "draft")
        drafter = ModelDrafter(drafter_backend, Sampling(), info.vocabulary.size)
        run = generate(client, drafter, 3, info=info, max_tokens=20)
    assert run.tokens == plain(_Wide(), PROMPT, 20)
    assert max(run.tokens) >= 258
    assert run.stats.accepted > 0  # drafting continues between them
