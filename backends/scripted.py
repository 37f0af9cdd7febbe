"""A deterministic toy language model without weights, for tests and for measurements of everything but the model.

Its logits are random numbers seeded by the last `ORDER` tokens: the text depends on the context, so that a wrong KV
cache changes the text at once. A draft model of agreement a has the target's logits after a share a of all contexts,
and unrelated logits after the others. Its acceptance rate is a little higher: unrelated logits can give equal tokens.
The model's own head has an agreement, too.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specpair.engines.backend import Backend, Entry, HeadEntry, Logits, Progress, Rows, TopLogitsSpec
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import COMPILATION, LoadOptions
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.speculation.sampling.top_logits import top_logits_of

ORDER = 4  # tokens of context that decide the next token
BEGIN, END = 256, 257


class ByteVocabulary(Vocabulary):
    """256 bytes, a begin and an end token, and unused ids up to `size`."""

    def __init__(self, size: int = 258) -> None:
        if size < 258:
            raise ValueError(f"a byte vocabulary has at least 258 ids, got {size}")
        pieces = [bytes([i]) for i in range(256)] + [b"<begin>", b"<end>"] + [b""] * (size - 258)
        kinds = [Kind.ORDINARY] * 256 + [Kind.CONTROL] * 2 + [Kind.UNUSED] * (size - 258)
        super().__init__(pieces, kinds, BEGIN, frozenset({END}))

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        ids = [BEGIN] if add_begin else []
        if not parse_control:
            return ids + list(text.encode())
        for number, part in enumerate(text.split("<end>")):
            ids += [END] * (number > 0) + list(part.encode())
        return ids


@dataclass(frozen=True, slots=True)
class Script:
    """The parameters of the toy model. Two backends with equal `seed` are the same model."""

    seed: int = 1
    agreement: float = 1.0  # share of the contexts after which the logits are those of agreement 1; 0 to 1
    head_agreement: float = 1.0  # share of the contexts after which the logits of the model's head are the model's
    sharpness: float = 4.0  # standard deviation of the logits
    end_bias: float = -100.0  # added to the end token's logit: large values end texts early
    vocabulary_size: int = 258  # ids, at least 258
    seconds_per_pass: float = 0.0  # how long each forward pass sleeps
    support: int | None = None  # only ids below it have finite logits; None: all ordinary ids and the end token


class ScriptedBackend(Backend):
    """The toy model as an engine. A slot holds a plain list of tokens.

    Raises EngineFailure where an engine's head would lose what it has read: if the next use of a slot goes beyond the
    tokens behind which the head has drafted.
    """

    name = "scripted"
    takes_trees = True

    def __init__(
        self,
        script: Script = Script(),
        *,
        slots: int = 4,
        context_length: int = 1024,
        max_batch_tokens: int = 512,
        max_rollback: int | None = None,
        can_copy: bool = True,
        has_top_logits: bool = False,
        head_depth: int = 0,
    ) -> None:
        self.script = script
        self.model_name = f"scripted-{script.seed}"
        self.vocabulary = ByteVocabulary(script.vocabulary_size)
        self.slots, self.context_length, self.max_batch_tokens = slots, context_length, max_batch_tokens
        self.max_rollback, self.can_copy, self.has_top_logits = max_rollback, can_copy, has_top_logits
        self.can_splice, self.head_depth = can_copy, head_depth
        self.passes = 0  # forward passes so far
        self.head_steps = 0  # steps of the head so far
        self.fed = 0  # tokens over all passes
        self.held: list[list[int]] = [[] for _ in range(slots)]  # the token ids in each slot
        self._head_from: dict[int, int] = {}  # by slot: behind how many of its tokens the head has drafted since
        super().__init__()

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        """The float32 logits (vocab,) of the token that follows `tokens`: the model as a pure function."""
        context = tuple(tokens[-ORDER:])
        agreement = self.script.agreement
        disagrees = agreement < 1.0 and np.random.default_rng([self.script.seed, 7, *context]).random() >= agreement
        return self._logits(11 if disagrees else 5, context)

    def head_logits_after(self, tokens: Sequence[int]) -> Logits:
        """As `logits_after`, of the model's own head."""
        context = tuple(tokens[-ORDER:])
        agreement = self.script.head_agreement
        disagrees = agreement < 1.0 and np.random.default_rng([self.script.seed, 13, *context]).random() >= agreement
        return self._logits(17, context) if disagrees else self.logits_after(tokens)

    def _logits(self, source_number: int, context: tuple[int, ...]) -> Logits:
        source = np.random.default_rng([self.script.seed, source_number, *context])
        logits = np.full(self.vocabulary.size, -np.inf, dtype=np.float32)
        support = min(self.script.support or END + 1, END + 1)
        logits[:support] = source.standard_normal(support) * self.script.sharpness
        logits[BEGIN] = -np.inf
        logits[END] = max(float(logits[END]), 0.0) + self.script.end_bias
        return logits

    def close(self) -> None:
        self.held = [[] for _ in range(self.slots)]

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.passes += 1
        self.fed += sum(len(entry.tokens) for entry in batch)
        if self.script.seconds_per_pass:
            time.sleep(self.script.seconds_per_pass)
        results = []
        for entry in batch:
            slot, start, tokens, logits_from, parents = entry
            held = self._fed(slot, start, tokens[: entry.trunk])
            texts = [held[: start + at] for at in range(1, entry.trunk + 1)]
            for token, parent in zip(tokens[entry.trunk :], parents, strict=True):
                texts.append([*texts[-parent], token])
            rows = [self.logits_after(each) for each in texts[logits_from:]]
            results.append(np.stack(rows) if rows else np.empty((0, self.vocabulary.size), dtype=np.float32))
        return results

    def _fed(self, slot: int, start: int, tokens: Sequence[int]) -> list[int]:
        """A slot's tokens after these tokens are fed from `start` on."""
        self._check_head(slot, start)
        self._head_from.pop(slot, None)
        held = self.held[slot]
        held[start:] = tokens
        return held

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        self.head_steps += 1
        for slot, start, _ in batch:
            self._check_head(slot, start)
            self._head_from[slot] = start
        return np.stack([self.head_logits_after([*self.held[slot][:start], *tail]) for slot, start, tail in batch])

    def _check_head(self, slot: int, used: int) -> None:
        """Raise EngineFailure unless the first `used` tokens of a slot are those that the head counts on."""
        if used > (drafted := self._head_from.get(slot, used)):
            raise EngineFailure(f"slot {slot}: the head has drafted behind {drafted} tokens, and {used} are used")

    def _extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> list[Rows]:
        found: list[Rows] = []
        for rows, (size, temperature, below) in zip(self._forward(batch), wanted, strict=True):
            rows = rows[:, :below]
            found.append(rows if size is None else [top_logits_of(row, size, temperature) for row in rows])
        return found

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        self._check_head(entry.slot, self.length(entry.slot))
        self.held[entry.slot] += [entry.tokens[index] for index in path]

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._check_head(source, length)
        self._head_from.pop(destination, None)
        self.held[destination] = self.held[source][:length]

    def _splice(self, slot: int, start: int, end: int, source: int | None, first: int) -> None:
        self._head_from.pop(slot, None)
        self.held[slot][start:end] = [] if source is None else self.held[source][first:]

    def _release(self, slot: int) -> None:
        self._head_from.pop(slot, None)
        self.held[slot] = []


def load(options: LoadOptions, progress: Progress | None = None) -> ScriptedBackend:
    """Make a toy model, whose seed is the file name of `options.model`, e.g. `7`, or 1. Raises ModelLoadError."""
    options.refuse("scripted", "device", "dtype", "compile", "tensor_parallel", *COMPILATION)
    name = options.model.name if options.model is not None else "1"
    if not name.isdigit():
        raise ModelLoadError(f"the scripted backend takes a number as its model, got {name!r}")
    if progress is not None:
        progress(1.0)
    context = options.context_length or 1024
    return ScriptedBackend(
        Script(seed=int(name)),
        slots=(options.slots or 4) + (options.spare_slots if context >= options.spare_from else 0),
        context_length=context,
        max_batch_tokens=options.batch_tokens,
    )
