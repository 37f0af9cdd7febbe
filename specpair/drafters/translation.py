"""Drafts for a target with another vocabulary, by translating tokens through the bytes of the text.

The committed text is also kept in the draft model's tokens. The bytes that the draft model writes behind it are encoded
in the target's tokens, which are the draft tokens. The target rejects a draft token where it writes the bytes in other
tokens. (The string-exact form of universal assisted decoding: Timor et al., "Accelerating LLM inference with lossless
speculative decoding algorithms for heterogeneous vocabularies", arXiv 2502.05202.)

Shared noise is keyed by token id. The draft model draws the tokens that both vocabularies have, which are most, under
the target's ids, so that their noise is shared. Its other tokens have separate noise.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import numpy as np

from specpair.drafters.base import Expansion, StrategyRefused
from specpair.drafters.byte_pairs import BytePairs
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.sampling.sampling import Row, Sampling, choose, probabilities
from specpair.speculation.sampling.top_logits import TopLogits

_PASSES = 12  # passes of the draft model for one draft token, at most
_LOOSE = 64  # last tokens of the text, in the draft model's vocabulary, whose encoding may still change
_CONTEXT = 64  # bytes before a token that decide how the target encodes the rest of a word
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes that continue a character in UTF-8
_FEW = 8  # tokens beyond one a pass that a draft step can read and still count as having read one (`Expansion.read`)


class TranslatingDrafter:
    """Drafts with a model of another vocabulary than the target's, one continuation at a time."""

    width = 1

    def __init__(self, backend: Backend, target: Vocabulary, sampling: Sampling, *, draws: bool = False) -> None:
        """`target`: the target's vocabulary. Raises StrategyRefused if `draws` is set (see `ModelDrafter`)."""
        if draws:
            raise StrategyRefused(
                "the strategy probabilistic needs the distribution over the target's tokens from which a draft is "
                "drawn, and a translated draft has none: choose a draft model of the target's family, or another "
                "strategy"
            )
        self._target, self._ours = target, backend.vocabulary
        self._model = _Coupled(backend, target, sampling)
        ours = _ordinary(self._ours)
        self._target_encoder = BytePairs(_ordinary(target))
        self._our_encoder = BytePairs(ours)  # used where the draft model's own encoding changes the bytes
        self._bytes = {piece[0]: token for token, piece in ours.items() if len(piece) == 1}
        self._control = {
            piece: token for token, piece in enumerate(self._ours.pieces) if self._ours.kinds[token] == Kind.CONTROL
        }
        self._known = 0  # tokens of the text so far
        # The text is `_fixed`, in the draft model's tokens, then `_loose`, in bytes whose tokens may still change.
        self._fixed = self._ours.encode("")
        self._loose = b""
        self._ahead = b""  # the bytes expected to follow
        self._ids: list[int] = []  # `_loose` and `_ahead` in the draft model's tokens
        # For each token that the model wrote: its end in `_ahead`, and its probability.
        self._chances: list[tuple[int, float]] = []
        self._partial = b""  # bytes at the end of `_loose` and `_ahead` without a token: part of a character
        self._ended = False  # whether the model ends the text behind `_ahead`

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        for token in text[self._known :]:
            self._commit(token)
        self._known = len(text)
        self._settle()
        proposals, read = [], 0
        for tail in tails:
            proposal, more = self._predict_after(tail)
            proposals.append(proposal or Proposal(text[-1], 0.0))
            read += more
        return Expansion(proposals, read)

    def _predict_after(self, tail: Sequence[int]) -> tuple[Proposal | None, int]:
        """The proposal behind `tail`, or None; and the number of tokens read for it (`Expansion.read`)."""
        if any(self._target.kinds[token] != Kind.ORDINARY for token in tail):
            return None, 1
        given = b"".join(self._target.pieces[token] for token in tail)
        if not self._ahead.startswith(given):
            self._expect(given)
        if not self._fixed and not self._ids:  # no begin token and no whole character: the model has nothing to read
            return None, 1
        passes = read = 0
        while (token := self._first(len(given))) is None and not self._ended and passes < _PASSES:
            passes, read = passes + 1, read + self._write()
        read = read if read - passes > _FEW else 1
        token = self._first(len(given), final=False) if token is None else token  # else the best available
        if token is None:
            return None, read
        end = len(given) + len(self._target.pieces[token])
        begins = [0, *(at for at, _ in self._chances)]
        written = zip(begins, self._chances, strict=False)
        chance = prod(chance for begin, (over, chance) in written if begin < end and over > len(given))
        return Proposal(token, chance), read

    def _first(self, skip: int, final: bool = True) -> int | None:
        """The target's first token behind the first `skip` bytes of `_ahead`; None if there is none (yet)."""
        tokens = self._target_tokens(skip, final)
        return tokens[0] if tokens else None

    def _target_tokens(self, skip: int, final: bool) -> list[int]:
        """The target's tokens behind the first `skip` bytes of `_ahead`.

        `final`: only tokens that do not change, whatever bytes follow `_ahead`.
        """
        at = len(self._loose) + skip
        near = (self._loose + self._ahead)[max(0, at - _CONTEXT) :].lstrip(_CONTINUATION)
        at = len(near) - len(self._ahead) + skip
        # First together with the beginning of the word; else without it, where the target wrote it in other tokens.
        for begin in (0, at):
            words = self._target_encoder.split(_decoded(near[begin:])[0])
            if final and not self._ended:
                words = words[:-1]
            while words and begin + len(words[0].encode()) <= at:
                begin += len(words.pop(0).encode())
            ids = self._target_encoder.encode("".join(words))
            ends = list(accumulate((len(self._target.pieces[token]) for token in ids), initial=begin))
            if at in ends:
                return ids[ends.index(at) :]
        return []

    def _write(self) -> int:
        """Let the model write one more token. Returns the number of tokens that it read."""
        self._model.position = self._known + len(self._target_tokens(0, final=False))
        (proposal,), read = self._model.expand(self._fixed, [self._ids], runners_up=0)
        piece = self._ours.pieces[proposal.token]
        if self._ours.kinds[proposal.token] != Kind.ORDINARY or not piece.startswith(self._partial):
            self._ended = True
            return read
        self._ids.append(proposal.token)
        self._ahead += piece[len(self._partial) :]
        self._partial = b""
        self._chances.append((len(self._ahead), proposal.confidence))
        return read

    def _commit(self, token: int) -> None:
        """Append `token` of the target to the text."""
        piece = self._target.pieces[token]
        if self._target.kinds[token] != Kind.ORDINARY:
            self._expect(b"")
            self._fix(len(self._ids))
            self._loose = b""
            if self._known or token != self._target.begin:
                self._fixed += [self._control[piece]] if piece in self._control else []
        elif self._ahead.startswith(piece):
            self._loose += piece
            self._ahead = self._ahead[len(piece) :]
            self._chances = [(at - len(piece), chance) for at, chance in self._chances if at > len(piece)]
        else:
            self._loose += piece
            self._ahead, self._chances, self._ids = b"", [], []

    def _settle(self) -> None:
        """Encode the new end of the text in the draft model's tokens, and fix the older tokens."""
        if not self._ids and self._loose:
            self._expect(b"")
        ends = accumulate(len(self._ours.pieces[token]) for token in self._ids)
        committed = sum(end <= len(self._loose) for end in ends)
        if committed > 2 * _LOOSE:
            self._fix(committed - _LOOSE)

    def _expect(self, given: bytes) -> None:
        """Set `_ahead` to `given`, whose tokens have no probabilities since the model did not write them."""
        self._ahead, self._chances, self._ended = given, [], False
        self._ids, self._partial = self._encode(self._loose + given)

    def _fix(self, count: int) -> None:
        """Move the first `count` of `_ids` to `_fixed`."""
        self._fixed += self._ids[:count]
        self._loose = self._loose[sum(len(self._ours.pieces[token]) for token in self._ids[:count]) :]
        del self._ids[:count]

    def _encode(self, data: bytes) -> tuple[list[int], bytes]:
        """`data` in the draft model's tokens, exact to the byte, and the bytes left at its end: part of a character."""
        ids: list[int] = []
        while True:
            text, bad, data = _decoded(data)
            encoded = self._ours.encode(text, add_begin=False)
            if self._ours.decode(encoded) != text.encode():  # some tokenizers put a space before every text
                encoded = self._our_encoder.encode(text)
            ids += encoded + [self._bytes[byte] for byte in bad if byte in self._bytes]
            if not bad:
                return ids, data


class _Coupled(ModelDrafter):
    """A draft model that draws with the target's noise for `position` in the target's text."""

    def __init__(self, backend: Backend, target: Vocabulary, sampling: Sampling) -> None:
        super().__init__(backend, sampling.unprocessed)  # logit processors know the target's ids only
        self.position = 0
        theirs = {piece: token for token, piece in _ordinary(target).items()}
        ours = _ordinary(backend.vocabulary)
        # A token that the target lacks gets an id beyond the target's ids.
        beyond = range(target.size, target.size + backend.vocabulary.size)
        ids = [theirs.get(ours[token], other) if token in ours else other for token, other in enumerate(beyond)]
        self._their_ids = np.array(ids)
        self._logits = np.full(target.size + backend.vocabulary.size, -np.inf, np.float32)
        self._our_ids = {their_id: token for token, their_id in enumerate(ids)}

    def _predict(self, row: Row, position: int, runners_up: int) -> Proposal:
        if self._sampling.greedy:
            return super()._predict(row, position, runners_up)
        whole = row.whole() if isinstance(row, TopLogits) else row
        self._logits[self._their_ids] = whole
        token = self._our_ids[choose(self._logits, self._sampling, self.position)]
        return Proposal(token, probabilities(whole, [token], self._sampling)[0])


def _ordinary(vocabulary: Vocabulary) -> dict[int, bytes]:
    return {token: piece for token, piece in enumerate(vocabulary.pieces) if vocabulary.kinds[token] == Kind.ORDINARY}


def _decoded(data: bytes) -> tuple[str, bytes, bytes]:
    """Split `data` into text, the invalid bytes behind it, and the rest.

    Without invalid bytes, the rest is empty or part of a character.
    """
    try:
        return data.decode(), b"", b""
    except UnicodeDecodeError as error:
        text = data[: error.start].decode()
        if error.reason == "unexpected end of data":
            return text, b"", data[error.start :]
        return text, data[error.start : error.end], data[error.end :]
