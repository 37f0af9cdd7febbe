"""Drafting for a target of another vocabulary: through the bytes of the text, which both can write.

The committed text is kept a second time, in the draft model's own tokens. What the model writes behind it is cut into
the target's tokens, as the target would write these bytes, and those are the drafts. A draft that the target writes
otherwise falls, as any wrong one does. (The string-exact form of universal assisted decoding: Timor et al.,
"Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous vocabularies", arXiv
2502.05202.)

Noise is shared by token id, so it is shared for the tokens that both vocabularies have, which are most: the model
draws these under the target's ids. Its other tokens have noise of their own.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import numpy as np

from backends.base import Backend
from backends.vocabulary import Kind, Vocabulary
from drafters.base import Expansion
from drafters.byte_pairs import BytePairs
from drafters.draft_model import ModelDrafter
from drafters.errors import StrategyRefused
from speculation.drafts.tree import Prediction
from speculation.sampling.sampling import Row, Sampling, choose, probability
from speculation.sampling.top_logits import TopLogits

_PASSES = 12  # of the draft model for one token of the target, at most
_LOOSE = 64  # tokens of the draft model that may still be written otherwise; older ones stay as they are
_CONTEXT = 64  # bytes before a place that decide how the target goes on writing a word
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no sign
_FEW = 8  # tokens read beyond one a pass that a step still counts as a step, and not as reading


class TranslatingDrafter:
    """Looks behind one continuation at a time. See the module."""

    width = 1

    def __init__(self, backend: Backend, target: Vocabulary, sampling: Sampling, *, draws: bool = False) -> None:
        """Raises StrategyRefused for drafts that are to be drawn (`draws`, as for `ModelDrafter`)."""
        if draws:
            raise StrategyRefused(
                "the strategy probabilistic needs the distribution over the target's tokens that a draft is from, "
                "and what is translated has none: choose a draft model of the target's family, or another strategy"
            )
        self._target, self._ours = target, backend.vocabulary
        self._model = _Coupled(backend, target, sampling)
        ours = _ordinary(self._ours)
        self._writes = BytePairs(_ordinary(target))
        self._spells = BytePairs(ours)  # where our own encoding does not give the bytes
        self._bytes = {piece[0]: token for token, piece in ours.items() if len(piece) == 1}
        self._names = {
            piece: token for token, piece in enumerate(self._ours.pieces) if self._ours.kinds[token] == Kind.CONTROL
        }
        self._known = 0  # tokens of the text so far
        self._fixed = self._ours.encode("")  # the text in our tokens: those that stay, and from here on
        self._loose = b""  # those that may be written otherwise
        self._ids: list[int] = []  # in our tokens: `_loose`, then `_ahead`
        self._ahead = b""  # what is thought to follow
        self._chances: list[tuple[int, float]] = []  # of tokens that the model wrote: end in `_ahead`, and chance
        self._owed = b""  # bytes at the end of `_loose` and `_ahead` that no token is written for: part of a sign
        self._ended = False  # whether the model ends the text behind `_ahead`

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        for token in text[self._known :]:
            self._commit(token)
        self._known = len(text)
        self._settle()
        predictions, read = [], 0
        for tail in tails:
            prediction, more = self._behind(tail)
            predictions.append(prediction or Prediction(text[-1], 0.0))
            read += more
        return Expansion(predictions, read)

    def _behind(self, tail: Sequence[int]) -> tuple[Prediction | None, int]:
        """What follows `tail`, None where nothing can be told; and the tokens read for it, a step counting as one."""
        if any(self._target.kinds[token] != Kind.ORDINARY for token in tail):
            return None, 1
        given = b"".join(self._target.pieces[token] for token in tail)
        if not self._ahead.startswith(given):
            self._think(given)
        if not self._fixed and not self._ids:  # no begin token, and no whole sign yet: there is nothing to read
            return None, 1
        passes = read = 0
        while (token := self._first(len(given))) is None and not self._ended and passes < _PASSES:
            passes, read = passes + 1, read + self._write()
        read = read if read - passes > _FEW else 1
        token = self._first(len(given), settled=False) if token is None else token  # then the best that can be told
        if token is None:
            return None, read
        end = len(given) + len(self._target.pieces[token])
        begins = [0, *(at for at, _ in self._chances)]
        part = zip(begins, self._chances, strict=False)
        chance = prod(chance for begin, (over, chance) in part if begin < end and over > len(given))
        return Prediction(token, chance), read

    def _first(self, skip: int, settled: bool = True) -> int | None:
        """The target's token behind the first `skip` bytes of what is ahead, where what follows cannot change it."""
        tokens = self._cut(skip, settled)
        return tokens[0] if tokens else None

    def _cut(self, skip: int, settled: bool) -> list[int]:
        """The target's tokens behind the first `skip` bytes of what is ahead; `settled`: that will not change."""
        place = len(self._loose) + skip
        near = (self._loose + self._ahead)[max(0, place - _CONTEXT) :].lstrip(_CONTINUATION)
        place = len(near) - len(self._ahead) + skip
        # With the word that goes on there; or without, where its beginning was written otherwise.
        for begin in (0, place):
            words = self._writes.split(_decoded(near[begin:])[0])
            if settled and not self._ended:
                words = words[:-1]
            while words and begin + len(words[0].encode()) <= place:
                begin += len(words.pop(0).encode())
            ids = self._writes.encode("".join(words))
            ends = list(accumulate((len(self._target.pieces[token]) for token in ids), initial=begin))
            if place in ends:
                return ids[ends.index(place) :]
        return []

    def _write(self) -> int:
        """Let the model write one more token; returns how many it read."""
        self._model.position = self._known + len(self._cut(0, settled=False))
        (prediction,), read = self._model.expand(self._fixed, [self._ids], runners_up=False)
        piece = self._ours.pieces[prediction.token]
        if self._ours.kinds[prediction.token] != Kind.ORDINARY or not piece.startswith(self._owed):
            self._ended = True
            return read
        self._ids.append(prediction.token)
        self._ahead += piece[len(self._owed) :]
        self._owed = b""
        self._chances.append((len(self._ahead), prediction.confidence))
        return read

    def _commit(self, token: int) -> None:
        """The text goes on with `token`."""
        piece = self._target.pieces[token]
        if self._target.kinds[token] != Kind.ORDINARY:
            self._think(b"")
            self._fix(len(self._ids))
            self._loose = b""
            if self._known or token != self._target.begin:
                self._fixed += [self._names[piece]] if piece in self._names else []
        elif self._ahead.startswith(piece):
            self._loose += piece
            self._ahead = self._ahead[len(piece) :]
            self._chances = [(at - len(piece), chance) for at, chance in self._chances if at > len(piece)]
        else:
            self._loose += piece
            self._ahead, self._chances, self._ids = b"", [], []

    def _settle(self) -> None:
        """The text has grown: write what is new of it in our tokens, and let what is old stay as it is."""
        if not self._ids and self._loose:
            self._think(b"")
        ends = accumulate(len(self._ours.pieces[token]) for token in self._ids)
        committed = sum(end <= len(self._loose) for end in ends)
        if committed > 2 * _LOOSE:
            self._fix(committed - _LOOSE)

    def _think(self, given: bytes) -> None:
        """Take `given` for what follows, as it is."""
        self._ahead, self._chances, self._ended = given, [], False
        self._ids, self._owed = self._encode(self._loose + given)

    def _fix(self, count: int) -> None:
        """Let the first `count` of our tokens stay as they are."""
        self._fixed += self._ids[:count]
        self._loose = self._loose[sum(len(self._ours.pieces[token]) for token in self._ids[:count]) :]
        del self._ids[:count]

    def _encode(self, data: bytes) -> tuple[list[int], bytes]:
        """`data` in our tokens, to the byte, but for what is left of it at the end: part of a sign."""
        ids: list[int] = []
        while True:
            text, bad, data = _decoded(data)
            written = self._ours.encode(text, add_begin=False)
            if self._ours.decode(written) != text.encode():  # some put a space before every text
                written = self._spells.encode(text)
            ids += written + [self._bytes[byte] for byte in bad if byte in self._bytes]
            if not bad:
                return ids, data


class _Coupled(ModelDrafter):
    """Draws with the target's noise, for the token at `position` of the target's text."""

    def __init__(self, backend: Backend, target: Vocabulary, sampling: Sampling) -> None:
        super().__init__(backend, sampling)
        self.position = 0
        theirs = {piece: token for token, piece in _ordinary(target).items()}
        ours = _ordinary(backend.vocabulary)
        # Behind the target's ids there is one for each token that it does not have.
        own = range(target.size, target.size + backend.vocabulary.size)
        ids = [theirs.get(ours[token], at) if token in ours else at for token, at in enumerate(own)]
        self._their_ids = np.array(ids)
        self._logits = np.full(target.size + backend.vocabulary.size, -np.inf, np.float32)
        self._our_ids = {theirs: token for token, theirs in enumerate(ids)}

    def _predict(self, row: Row, position: int, runner_up: bool) -> Prediction:
        if self._sampling.greedy:
            return super()._predict(row, position, runner_up)
        whole = row.whole() if isinstance(row, TopLogits) else row
        self._logits[self._their_ids] = whole
        token = self._our_ids[choose(self._logits, self._sampling, self.position)]
        return Prediction(token, probability(whole, token, self._sampling))


def _ordinary(vocabulary: Vocabulary) -> dict[int, bytes]:
    return {token: piece for token, piece in enumerate(vocabulary.pieces) if vocabulary.kinds[token] == Kind.ORDINARY}


def _decoded(data: bytes) -> tuple[str, bytes, bytes]:
    """Text, bytes behind it that are no UTF-8, and the rest; without such bytes the rest is part of a sign."""
    try:
        return data.decode(), b"", b""
    except UnicodeDecodeError as error:
        text = data[: error.start].decode()
        if error.reason == "unexpected end of data":
            return text, b"", data[error.start :]
        return text, data[error.start : error.end], data[error.end :]
