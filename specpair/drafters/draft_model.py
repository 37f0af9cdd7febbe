"""Drafts with a draft model: predicts the next token behind several continuations of the text in one pass."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from specpair.drafters.base import Expansion, read_in_chunks
from specpair.drafters.shared_engine import EngineView
from specpair.engines.backend import Backend, Entry, Rows, TopLogitsSpec
from specpair.engines.errors import BackendError, CacheFull
from specpair.grammar.of_text import processors_of
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.drafting.composed_context import ContextRead
from specpair.speculation.drafting.proposing import proposal
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.sampling.sampling import Row, Sampling, top_logits_spec
from specpair.speculation.text_options import TextSpec

_CHOICES = 8  # top logits of a row for greedy decoding: enough for a second choice
BRANCH_CELLS = 128  # KV cells that a continuation takes at most beyond the text that it shares

R = TypeVar("R")
Steps = Generator[tuple[list[Entry], list[TopLogitsSpec]], Sequence[Rows], R]
Passes = Steps[Expansion]  # the passes of a draft step: see `ModelDrafter.passes`


@dataclass(slots=True)
class DraftSlot:
    """The contents of a slot of the engine: the committed text up to `stem`, then the uncommitted `tail`."""

    number: int
    stem: int
    tail: list[int] = field(default_factory=list)
    used: int = 0  # number of the last `expand` that used it


class ModelDrafter:
    """Drafts with a model in the slots of a backend, with the verifier's noise unless it `draws`.

    What a slot holds is never computed again, and a tail that forks off another tail is copied. When the text outgrows
    the model's context, the window slides on to the last half of the context, which is then read again.
    """

    def __init__(
        self,
        backend: Backend,
        sampling: Sampling,
        vocabulary_size: int | None = None,
        *,
        draws: bool = False,
        prompt_len: int = 0,
        begun: tuple[int, int] | None = None,
    ) -> None:
        """`vocabulary_size`: the target's; ids beyond the smaller of the two vocabularies are never drafted.
        `prompt_len`: tokens of the prompt, which some logit processors treat in another way than the rest of the text.
        `begun`: a slot that holds the first tokens of the text, and how many; None: all slots are empty.

        `draws`: draw draft tokens with separate noise, from the distribution that is sent along with them, as the
        strategy `probabilistic` requires.
        """
        self.backend, self._sampling, self._draws = backend, sampling, draws
        self._ids = min(backend.vocabulary.size, vocabulary_size or backend.vocabulary.size)
        self._processors = processors_of(sampling, backend.vocabulary, prompt_len, below=self._ids)
        self._wanted = top_logits_spec(sampling, self._ids, choices=_CHOICES, whole=self._processors is not None)
        self._fewer_ids = (vocabulary_size or 0) > self._ids
        self.width = backend.slots if backend.can_copy else 1
        self._slots = [DraftSlot(number, 0) for number in range(self.width)]
        if begun is not None:
            self._slots[begun[0]].stem = begun[1]
        self._text: Sequence[int] = ()  # at the last `expand`
        self._length = 0  # of the text, in tokens, at the last `expand`
        self._base = 0  # position in the text of the first token in the window, which may follow a head
        self._head: Sequence[int] = ()  # what slots hold in place of the text's tokens from `_base` on
        self._calls = 0

    def read_prompt(
        self, text: Sequence[int], held: int, stopped: Callable[[], bool], answered: Callable[[], bool]
    ) -> int:
        """As `base.read_prompt`."""
        return read_in_chunks(self, text, held, stopped)

    @property
    def begun(self) -> int:
        """The number of the text's first tokens that a slot holds."""
        return max(slot.stem for slot in self._slots)

    @property
    def remains(self) -> tuple[int, Sequence[int]]:
        """The slot that holds the longest beginning of the text, and the tokens in the slot."""
        slot = max(self._slots, key=lambda slot: slot.stem)
        return slot.number, self._text[: 0 if self._base else slot.stem]

    @property
    def context_read(self) -> ContextRead:
        """What of the text is in the model's context, where it has read as far as it should."""
        return ContextRead(0, 0, self._length - self._base, self._length)

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return self._run(self.passes(text, tails, runners_up))

    def _run(self, passes: Steps[R]) -> R:
        try:
            wanted = next(passes)
            while True:
                try:
                    rows = self.backend.extend_top_logits(*wanted)
                except BackendError as error:
                    wanted = passes.throw(error)
                else:
                    wanted = passes.send(rows)
        except StopIteration as over:
            result: R = over.value
            return result

    def passes(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Passes:
        """`expand` as a generator: yields the entries of each pass, and is sent the result or the error."""
        try:
            return (yield from self._expand(text, tails, runners_up))
        except CacheFull:  # outdated continuations filled the cache; `_forward` has emptied all slots
            return (yield from self._expand(text, tails, runners_up))

    def _expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Passes:
        self._calls += 1
        self._follow(text)
        longest = max(len(tail) for tail in tails)
        if longest >= self._most_ahead:
            return (yield from self._far_ahead(text, tails, runners_up))
        limit = self.backend.max_batch_tokens
        read = yield from self._make_room(longest)
        read += yield from self._catch_up(limit // 2 if len(tails) == 1 else 0)
        chosen: list[DraftSlot] = []
        batch: list[Entry] = []
        proposals: list[Proposal] = []

        def run() -> Steps[None]:
            for rows, entry in zip((yield from self._forward(batch)), batch, strict=True):
                slot, tail = chosen[len(proposals)], tails[len(proposals)]
                slot.stem, slot.tail, slot.used = self._length, list(tail), self._calls
                position = self._base + entry.start + len(entry.tokens)
                proposals.append(self._predict(self._processed(rows[0], tail), position, runners_up))
            batch.clear()

        for tail in tails:
            slot, held = self._slot_for(tail, chosen)
            start = min(held, self._length + len(tail) - 1)
            feed = [*self._held_there(start, self._length), *self._readable(tail[max(0, start - self._length) :])]
            read += len(feed)
            if batch and len(feed) > limit - sum(len(entry.tokens) for entry in batch):
                yield from run()
            while len(feed) > limit:
                yield from self._forward([Entry(slot.number, start - self._base, feed[:limit], limit)])
                start, feed = start + limit, feed[limit:]
                slot.stem, slot.tail = min(start, self._length), list(tail[: max(0, start - self._length)])
            chosen.append(slot)
            batch.append(Entry(slot.number, start - self._base, feed, len(feed) - 1))
        yield from run()
        return Expansion(proposals, read)

    def _follow(self, text: Sequence[int]) -> None:
        """Take in the grown text: the accepted part of each tail now counts as text."""
        new = text[self._length :]
        for slot in self._slots:
            if slot.tail:
                accepted = common_prefix(new, slot.tail)
                slot.stem += accepted
                slot.tail = slot.tail[accepted:] if accepted == len(new) else []
        self._length, self._text = len(text), text
        if self._processors is not None and self._length >= self._processors.prompt_len:
            self._processors.commit(text)

    @property
    def _most_ahead(self) -> int:
        """The length of a tail behind which nothing of the text is read any more."""
        return self.backend.context_length

    def _make_room(self, ahead: int) -> Steps[int]:
        """Slide the window if the text and `ahead` more tokens (fewer than the context holds) exceed the context.

        Returns how many tokens were read for it.
        """
        context, longest = self.backend.context_length, self._length + ahead
        if longest - self._base > context:
            self._base = max(0, min(longest - context // 2, self._length - 1))
            self._forget()
        yield from ()
        return 0

    def _held_there(self, start: int, end: int) -> list[int]:
        """The tokens that slots hold at these positions of the text."""
        first, last = start - self._base, end - self._base
        head = self._head[first:last]
        return [*head, *self._readable(self._text[start + len(head) : end])]

    def _far_ahead(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Passes:
        """Predict behind tails that fill the whole context, from the last tokens of each. No slot keeps them."""
        window = min(self.backend.context_length, self.backend.max_batch_tokens + 1) // 2
        proposals = []
        for tail in tails:
            feed = self._readable([*text, *tail][-window:])
            row = (yield from self._forward([Entry(0, 0, feed, len(feed) - 1)]))[0][0]
            proposals.append(self._predict(self._processed(row, tail), len(text) + len(tail), runners_up))
        self._forget()
        return Expansion(proposals, window * len(tails))

    def _forget(self) -> None:
        """Release all slots, so that the engine frees their KV cells, too."""
        for slot in self._slots:
            self.backend.release(slot.number)
            slot.stem, slot.tail = min(self._base, self._length), []

    def _catch_up(self, most: int) -> Steps[int]:
        """Read the text, except its last token, into the slot that holds most of it, if that lacks more than `most`
        tokens.

        Returns the number of tokens read.
        """
        step = self.backend.max_batch_tokens
        slot = max(self._slots, key=lambda slot: slot.stem)
        read = 0
        while self._length - 1 - slot.stem > most:
            feed = self._held_there(slot.stem, min(slot.stem + step, self._length - 1))
            yield from self._forward([Entry(slot.number, slot.stem - self._base, feed, len(feed))])
            slot.stem, slot.tail = slot.stem + len(feed), []
            read += len(feed)
        return read

    def _slot_for(self, tail: Sequence[int], taken: Sequence[DraftSlot]) -> tuple[DraftSlot, int]:
        """The slot in which to expand `tail`, and how many positions of text and tail it holds."""
        best = max(self._slots, key=lambda slot: (self._held(slot, tail), -len(slot.tail), slot not in taken))
        held = self._held(best, tail)
        surplus = best.stem + len(best.tail) > held  # tokens of another continuation, which may be needed later
        if best not in taken and not (surplus and self.width > 1):
            return best, held
        slot = min((slot for slot in self._slots if slot not in taken), key=lambda slot: slot.used)
        if slot is best:
            return best, held
        if held > self._base:
            self.backend.copy(best.number, slot.number, held - self._base)
            slot.stem, slot.tail = min(held, self._length), list(tail[: max(0, held - self._length)])
        return slot, held

    def _held(self, slot: DraftSlot, tail: Sequence[int]) -> int:
        if slot.stem < self._length:
            return slot.stem
        return self._length + common_prefix(slot.tail, tail)

    def _readable(self, tokens: Sequence[int]) -> list[int]:
        if self._fewer_ids:  # any id may replace one that only the target knows
            return [token if token < self._ids else 0 for token in tokens]
        return list(tokens)

    def _forward(self, batch: list[Entry]) -> Steps[Sequence[Rows]]:
        try:
            return (yield batch, [self._wanted] * len(batch))
        except BackendError:  # the contents of the slots are unknown
            self._forget()
            raise

    def _processed(self, row: Row, tail: Sequence[int]) -> Row:
        """The row behind the text and `tail`, changed by the logit processors.

        They follow the whole text, wherever the window begins. While the prompt is read in pieces, they do nothing: no
        draft begins inside the prompt.
        """
        if self._processors is None or self._length < self._processors.prompt_len:
            return row
        return self._processors.process(row, tail)

    def _predict(self, logits: Row, position: int, runners_up: int) -> Proposal:
        return proposal(logits, self._sampling, position, runners_up, draws=self._draws)


def expand_together(asked: Sequence[tuple[ModelDrafter, Sequence[int], Sequence[int]]]) -> list[Expansion]:
    """A draft step for several texts whose drafters share an engine: as `expand`, in shared passes.

    `asked`: drafter, text and tail of each. Raises what the engine raises; then none of them has its step.
    """
    steps = [drafter.passes(text, [tail], 0) for drafter, text, tail in asked]
    wanted = [next(each) for each in steps]
    found: list[Expansion | None] = [None] * len(asked)
    while left := [at for at, each in enumerate(found) if each is None]:
        for at, rows in _run([(at, asked[at][0].backend, wanted[at]) for at in left]):
            try:
                wanted[at] = steps[at].throw(rows) if isinstance(rows, BackendError) else steps[at].send(rows)
            except StopIteration as over:
                found[at] = over.value
    return [each for each in found if each is not None]


def _run(
    calls: Sequence[tuple[int, Backend, tuple[list[Entry], list[TopLogitsSpec]]]],
) -> list[tuple[int, Sequence[Rows] | BackendError]]:
    """Run as many of the calls as fit into one pass. Returns the result or the error of each."""
    taken = 0
    fit: list[tuple[int, tuple[EngineView, list[Entry], list[TopLogitsSpec]]]] = []
    for at, view, (batch, specs) in calls:
        assert isinstance(view, EngineView)
        tokens = sum(len(entry.tokens) for entry in batch)
        if not fit or taken + tokens <= view.pass_tokens:
            fit.append((at, (view, batch, specs)))
            taken += tokens
    try:
        brought = EngineView.extend_together([call for _, call in fit])
    except BackendError as error:
        return [(at, error) for at, _ in fit]
    return [(at, rows) for (at, _), rows in zip(fit, brought, strict=True)]


def model_drafter(
    backend: Backend, spec: TextSpec, vocabulary_size: int, prompt_len: int, begun: tuple[int, int] | None = None
) -> ModelDrafter:
    """The drafter of a text.

    `vocabulary_size`: the target's.
    `prompt_len`: tokens of the prompt.
    `begun`: as for `ModelDrafter`.
    """
    draws = spec.strategy.draws
    return ModelDrafter(backend, spec.drawn, vocabulary_size, draws=draws, prompt_len=prompt_len, begun=begun)
