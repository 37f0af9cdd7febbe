"""The draft model at work: looks beyond several continuations of the committed text in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.base import Backend, BackendError, Entry, OutOfRoom, Rows, head_for
from drafters.base import Expansion
from speculation.acceptance.draft_probs import drawn_from, normalised, propose
from speculation.acceptance.strategies import Strategy, common_prefix, effective_sampling
from speculation.drafts.tree import Prediction
from speculation.sampling.sampling import Row, Sampling, choose, choose_two, probability

_CHOICES = 8  # of greedy decoding: enough to name a second one
BRANCH_CELLS = 128  # tokens that a continuation holds at most beyond what it shares with the text


@dataclass(slots=True)
class _Row:
    """What a row of the engine holds: committed text up to `stem`, then `tail`, which is no committed text yet."""

    number: int
    stem: int
    tail: list[int] = field(default_factory=list)
    used: int = 0


class ModelDrafter:
    """Drafts with a model in the rows of a backend, under the verifier's own noise unless it `draws`.

    What a row holds is never computed again, and a tail that forks off another one's is copied. Only when the text
    outgrows the model's context does the window slide on to the last half of it, and is read anew.
    """

    def __init__(
        self, backend: Backend, sampling: Sampling, vocabulary_size: int | None = None, *, draws: bool = False
    ) -> None:
        """`vocabulary_size`: the verifier's; ids beyond the smaller vocabulary are never drafted.

        `draws`: with noise of their own, from what is sent with them, as the strategy probabilistic wants drafts.
        """
        self._backend, self._sampling, self._draws = backend, sampling, draws
        self._ids = min(backend.vocabulary.size, vocabulary_size or backend.vocabulary.size)
        self._wanted = head_for(sampling, self._ids, choices=_CHOICES)
        self._fewer_ids = (vocabulary_size or 0) > self._ids
        self.width = backend.rows if backend.can_copy else 1
        self._rows = [_Row(number, 0) for number in range(self.width)]
        self._length = 0  # of the text at the last call
        self._base = 0  # where the window begins
        self._calls = 0

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        try:
            return self._expand(text, tails, runners_up)
        except OutOfRoom:  # what rows held of dead continuations took room, and all of it is given back: read anew
            return self._expand(text, tails, runners_up)

    def _expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        self._calls += 1
        self._follow(text)
        longest = max(len(tail) for tail in tails)
        if longest >= self._backend.context_length:
            return self._far_ahead(text, tails, runners_up)
        self._slide(longest)
        limit = self._backend.max_batch_tokens
        read = self._catch_up(text, limit // 2 if len(tails) == 1 else 0)
        chosen: list[_Row] = []
        batch: list[Entry] = []
        predictions: list[Prediction] = []

        def look() -> None:
            for rows, entry in zip(self._forward(batch), batch, strict=True):
                row, tail = chosen[len(predictions)], tails[len(predictions)]
                row.stem, row.tail, row.used = self._length, list(tail), self._calls
                place = self._base + entry.start + len(entry.tokens)
                predictions.append(self._predict(rows[0], place, runners_up))
            batch.clear()

        for tail in tails:
            row, held = self._row_for(tail, chosen)
            start = min(held, self._length + len(tail) - 1)
            feed = self._readable([*text[start:], *tail[max(0, start - self._length) :]])
            read += len(feed)
            if batch and len(feed) > limit - sum(len(entry.tokens) for entry in batch):
                look()
            while len(feed) > limit:
                self._forward([Entry(row.number, start - self._base, feed[:limit], limit)])
                start, feed = start + limit, feed[limit:]
                row.stem, row.tail = min(start, self._length), list(tail[: max(0, start - self._length)])
            chosen.append(row)
            batch.append(Entry(row.number, start - self._base, feed, len(feed) - 1))
        look()
        return Expansion(predictions, read)

    def _follow(self, text: Sequence[int]) -> None:
        """The text has grown: what stood of each tail is text now."""
        new = text[self._length :]
        for row in self._rows:
            if row.tail:
                stood = common_prefix(new, row.tail)
                row.stem += stood
                row.tail = row.tail[stood:] if stood == len(new) else []
        self._length = len(text)

    def _slide(self, tail: int) -> None:
        """Make room for the text and `tail` tokens more, which are fewer than the context holds."""
        context, longest = self._backend.context_length, self._length + tail
        if longest - self._base > context:
            self._base = max(0, min(longest - context // 2, self._length - 1))
            self._forget()

    def _far_ahead(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        """Behind tails that fill the whole context: what is known of their ends, nothing of it kept."""
        window = min(self._backend.context_length, self._backend.max_batch_tokens + 1) // 2
        predictions = []
        for tail in tails:
            feed = self._readable([*text, *tail][-window:])
            row = self._forward([Entry(0, 0, feed, len(feed) - 1)])[0][0]
            predictions.append(self._predict(row, len(text) + len(tail), runners_up))
        self._forget()
        return Expansion(predictions, window * len(tails))

    def _forget(self) -> None:
        """Give back what the rows hold: what was forgotten only here would go on taking room."""
        for row in self._rows:
            self._backend.release(row.number)
            row.stem, row.tail = min(self._base, self._length), []

    def _catch_up(self, text: Sequence[int], most: int) -> int:
        """Read what no row holds of the text before its last token, if more than `most`; returns how many tokens."""
        step = self._backend.max_batch_tokens
        row = max(self._rows, key=lambda row: row.stem)
        read = 0
        while self._length - 1 - row.stem > most:
            feed = self._readable(text[row.stem : min(row.stem + step, self._length - 1)])
            self._forward([Entry(row.number, row.stem - self._base, feed, len(feed))])
            row.stem, row.tail = row.stem + len(feed), []
            read += len(feed)
        return read

    def _row_for(self, tail: Sequence[int], taken: Sequence[_Row]) -> tuple[_Row, int]:
        """The row to look beyond `tail` in, and how many positions it holds of text and tail."""
        best = max(self._rows, key=lambda row: (self._held(row, tail), -len(row.tail), row not in taken))
        held = self._held(best, tail)
        surplus = best.stem + len(best.tail) > held  # of another continuation, which may still be wanted
        if best not in taken and not (surplus and self.width > 1):
            return best, held
        row = min((row for row in self._rows if row not in taken), key=lambda row: row.used)
        if row is best:
            return best, held
        if held > self._base:
            self._backend.copy(best.number, row.number, held - self._base)
            row.stem, row.tail = min(held, self._length), list(tail[: max(0, held - self._length)])
        return row, held

    def _held(self, row: _Row, tail: Sequence[int]) -> int:
        if row.stem < self._length:
            return row.stem
        return self._length + common_prefix(row.tail, tail)

    def _readable(self, tokens: Sequence[int]) -> list[int]:
        if self._fewer_ids:  # in place of one that only the target knows, any will do
            return [token if token < self._ids else 0 for token in tokens]
        return list(tokens)

    def _forward(self, batch: list[Entry]) -> Sequence[Rows]:
        try:
            return self._backend.heads(batch, [self._wanted] * len(batch))
        except BackendError:  # nothing is certain of the rows
            self._forget()
            raise

    def _predict(self, logits: Row, position: int, runner_up: bool) -> Prediction:
        if self._draws:
            weights = propose(logits, self._sampling)
            token = drawn_from(weights, self._sampling.seed, position)
            return Prediction(token, normalised(weights)[token], probs=weights)
        second = None
        if runner_up:
            token, second = choose_two(logits, self._sampling, position)
        else:
            token = choose(logits, self._sampling, position)
        return Prediction(token, probability(logits, token, self._sampling), second)


def model_drafter(backend: Backend, sampling: Sampling, strategy: Strategy, vocabulary_size: int) -> ModelDrafter:
    """The drafter that a strategy wants, under the session's sampling."""
    return ModelDrafter(backend, effective_sampling(strategy, sampling), vocabulary_size, draws=strategy.draws)
