"""The passes of a model of transformers-neuronx, with lists in and NumPy arrays out.

A slot is one sequence (`start_ids`) of the library's continuous batching. Its KV cache consists of cells (`cache_ids`),
cell i for position i. The library does not record which cells are valid, so a rollback is a pass from an earlier cell
on.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from backends.base import EngineFailure, Logits
from backends.neuron.shapes import Programs, cells_of, padded, parked

Work = tuple[int, Sequence[int]]  # the cell of the first token, above 0, and the tokens


class Passes:
    """Runs the programs of a built model. `vocabulary_size`: logits per token."""

    def __init__(self, model: Any, programs: Programs, vocabulary_size: int) -> None:
        self._torch = import_module("torch")  # a dependency of transformers-neuronx
        self._model, self._programs, self._vocabulary_size = model, programs, vocabulary_size
        self._pays_from: dict[int, int] = {}  # by width: the slots from which on a pass over all slots pays

    def prompt(self, slot: int, tokens: Sequence[int]) -> Logits:
        """Run a prompt pass, from cell 0 on. Returns the logits (1, vocab) of the last of `tokens`.

        A prompt of one token gets a padding token: else it would be a pass over a single token. The library returns the
        logits of the token with the greatest cell. So the padding token's cell is given as 0, although the library
        writes it to cell 1.
        """
        count = len(tokens)
        cells = padded(range(count), max(count, 2))
        logits = self._model.forward(
            self._tensor([padded(tokens, len(cells))]), cache_ids=self._tensor([cells]), start_ids=self._tensor([slot])
        )
        return self._array(logits, (1, self._vocabulary_size))

    def continuation(self, slot: int, work: Work, width: int) -> Logits:
        """Run a continuation of `width` tokens. Returns the logits (1, vocab) of the last token of `work`.

        As the library does for its windows, this hands embeddings to the program: (hidden, tokens, slots).
        """
        start, tokens = work
        program = self._model.decoder_lm_head_for_window_context[width]
        ids = self._tensor([padded(tokens, width)])
        hidden = self._model.chkpt_model.model.embed_tokens(ids).transpose(0, -1).contiguous()
        cells = self._tensor([cells_of(start, width, self._programs.cells)])
        inputs = [hidden, cells, self._tensor([slot]), self._tensor([len(tokens) - 1])]
        unused = [self._tensor([0])] * (len(program.inputs_sdim) - len(inputs))  # of paged attention, in newer versions
        logits = program(*inputs, *unused)[: self._vocabulary_size, -1, :].transpose(0, 1)
        return self._array(logits, (1, self._vocabulary_size))

    def verify(self, work: Mapping[int, Work], held: Sequence[int]) -> dict[int, Logits]:
        """Run the verify passes of the slots in `work`: one for all slots, where that pays, else one for each.

        `held`: how many tokens each slot holds; what a slot outside of `work` holds stays. Returns the logits
        (tokens, vocab) of each slot in `work`.
        """
        longest = max(len(tokens) for _, tokens in work.values())
        width = self._programs.verify_width(longest, self._programs.slots)
        if width is not None and len(work) >= self._pays_from.get(width, 2):
            return self._of_all_slots(work, held, width)
        return {slot: self._of_one_slot(slot, each) for slot, each in work.items()}

    def warm_up(self, done: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> None:
        """Run every program once: its first run is slow, and a program that fails should fail at load.

        Verify passes are run twice, and timed: this decides whether a pass over all slots pays. That over the longest
        span counts. `done` is called after each program.
        """
        programs = self._programs
        for width in programs.prompts:
            self.prompt(0, [0] * (width - 1))
            done()
        for span in programs.spans:
            for width in programs.continuations:
                self.continuation(0, (span - width, [0] * width), width)
                done()
            for width in programs.verify:
                seconds = {}
                for batch in programs.batches(width):
                    seconds[batch] = self._seconds((span - width, [0] * width), batch, clock)
                    done()
                if len(seconds) == 2:  # as many slots as have, one by one, passes that take longer than that over all
                    self._pays_from[width] = math.ceil(seconds[programs.slots] / max(seconds[1], 1e-9))

    def _seconds(self, work: Work, batch: int, clock: Callable[[], float]) -> float:
        """Run a verify pass twice, over one slot or over all, of which the first has `work`. Returns the seconds of the
        second run."""
        for _ in range(2):
            began = clock()
            if batch == 1:
                self._of_one_slot(0, work)
            else:
                self._of_all_slots({0: work}, [0] * batch, len(work[1]))
        return clock() - began

    def _of_one_slot(self, slot: int, work: Work) -> Logits:
        start, tokens = work
        width = self._programs.verify_width(len(tokens))
        assert width is not None, "pieces are cut to these widths"
        cells = cells_of(start, width, self._programs.cells)
        return self._speculative([padded(tokens, width)], [cells], [slot])[: len(tokens), :, 0]

    def _of_all_slots(self, work: Mapping[int, Work], held: Sequence[int], width: int) -> dict[int, Logits]:
        cells = self._programs.cells
        every = [work.get(slot) for slot in range(self._programs.slots)]
        logits = self._speculative(
            [padded(() if each is None else each[1], width) for each in every],
            [
                parked(held[slot], width, cells) if each is None else cells_of(each[0], width, cells)
                for slot, each in enumerate(every)
            ],
            list(range(self._programs.slots)),
        )
        return {slot: logits[: len(tokens), :, slot] for slot, (_, tokens) in work.items()}

    def _speculative(self, ids: list[list[int]], cells: list[list[int]], slots: list[int]) -> Logits:
        """Run a speculative pass of the library. Returns logits (width, vocab, slots)."""
        width = len(ids[0])
        logits = self._model.speculative_forward(
            self._tensor(ids),
            cache_ids=self._tensor(cells),
            start_ids=self._tensor(slots),
            speculation_length=width,
        )
        return self._array(logits, (width, self._vocabulary_size, len(slots)))

    def _tensor(self, values: Sequence[Any]) -> Any:
        return self._torch.tensor(values, dtype=self._torch.int32)

    def _array(self, logits: Any, shape: tuple[int, ...]) -> Logits:
        """The library's logits in NumPy. Raises EngineFailure if their shape is not `shape`."""
        if tuple(logits.shape) != shape:
            raise EngineFailure(
                f"transformers-neuronx returned logits of shape {tuple(logits.shape)}, expected was {shape}"
            )
        array: Logits = logits.float().numpy()
        return array
