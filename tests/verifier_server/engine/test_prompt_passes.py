"""The same request gives the same text again on an engine whose bits depend on the widths of passes."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.prompt_passes import prompt_pass
from tests.verifier_server.engine.bench import Bench
from tests.verifier_server.engine.virtual import SCRIPT

STEP, REST, WIDE, BATCH = 4, 8, 64, 256


class Kernels(ScriptedBackend):
    """Chooses kernels as llama.cpp does on a CPU: by the width of the pass, and for the rows behind the last group.

    Each token's bits depend on the kernel of its row and on the bits before it, and so does what follows it.
    """

    def __init__(self) -> None:
        super().__init__(SCRIPT, slots=2, context_length=4096, max_batch_tokens=BATCH)
        self.reuse_step, self.reuse_rest, self.wide_pass = STEP, REST, WIDE
        self.widths: list[int] = []  # of the passes so far
        self._bits: list[list[int]] = [[] for _ in range(self.slots)]

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        super()._forward(batch)
        rows = []
        width = sum(len(entry.tokens) for entry in batch)
        self.widths.append(width)
        for entry in batch:
            bits = self._bits[entry.slot]
            del bits[entry.start :]
            for row, token in enumerate(entry.tokens):
                kernel = (width >= WIDE, width >= REST, row >= width // STEP * STEP)
                bits.append(hash((bits[-1] if bits else 0, token, *kernel)) % 2**32)
            after = [self.logits_after([each]) for each in bits[entry.start + entry.logits_from :]]
            rows.append(np.array(after, np.float32).reshape(-1, self.vocabulary.size))
        return rows

    def _copy(self, source: int, destination: int, length: int) -> None:
        super()._copy(source, destination, length)
        self._bits[destination] = self._bits[source][:length]


def text(bench: Bench, prompt: Sequence[int], tokens: int = 6) -> list[int]:
    """The text of a session that has ended and is removed."""
    session = bench.open(prompt, max_tokens=tokens)
    bench.decode(session)
    bench.engine.forget(session)
    bench.engine.step()
    return session.tokens[len(prompt) :]


def read(bench: Bench, prompt: Sequence[int]) -> list[int]:
    """The widths of the passes that read a prompt."""
    backend = bench.backend
    assert isinstance(backend, Kernels)
    before = len(backend.widths)
    text(bench, prompt, tokens=1)
    return backend.widths[before:]


def document(length: int, kind: int = 1) -> list[int]:
    return [256, *(kind * at % 251 for at in range(length - 1))]


@pytest.mark.parametrize(
    ("length", "widths"),
    [
        (63, [63]),
        (64, [56, 8]),
        (71, [60, 11]),
        (200, [192, 8]),
        (267, [256, 11]),
        (300, [228, 64, 8]),
        (600, [256, 256, 80, 8]),
        (580, [256, 252, 64, 8]),
    ],
)
def test_the_end_of_a_prompt_is_read_in_a_narrow_pass(length: int, widths: list[int]) -> None:
    assert read(Bench(backend=Kernels()), document(length)) == widths


@given(st.integers(1, 2000), st.integers(1, 300))
def test_each_pass_feeds_something(length: int, most: int) -> None:
    backend, held = Kernels(), 0
    while held < length:
        fed = prompt_pass(backend, held, length, length - held, most)
        assert 0 < fed <= most
        held += fed


def test_the_same_prompt_again_reads_its_last_pass() -> None:
    bench = Bench(backend=Kernels())
    assert [read(bench, document(length)) for length in (203, 203, 50, 50)] == [[192, 11], [11], [50], [10]]


def test_the_next_turn_reads_what_is_new() -> None:
    bench = Bench(backend=Kernels())
    turn = document(201)
    turn += [*text(bench, turn, tokens=24), *range(30)]
    assert read(bench, turn) == [255 - 224], "the last token of a text was never fed"
    assert read(bench, turn) == [255 - 244]
    assert read(bench, [*turn, *range(90)]) == [336 - 224, 9], "alone, it would be read in a wide pass from there on"


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 500), st.integers(0, 150), st.integers(0, 2)),
        min_size=2,
        max_size=8,
    )
)
def test_prompts_that_begin_alike_have_the_texts_that_they_have_alone(
    asked: list[tuple[int, int, int, int]],
) -> None:
    """Of each kind of document, some first tokens and a question behind them."""
    bench = Bench(backend=Kernels())
    for kind, length, more, question in asked:
        prompt = [*document(length, kind), *[100 + question] * more]
        assert text(bench, prompt) == text(Bench(backend=Kernels()), prompt)


@given(
    st.lists(st.tuples(st.integers(1, 150), st.integers(1, 90)), min_size=2, max_size=5),
    st.lists(st.integers(0, 10), max_size=8),
)
def test_turns_of_a_chat_have_the_same_texts_again(turns: list[tuple[int, int]], again: list[int]) -> None:
    """Each turn any number of times, none before the one that it follows was answered."""
    bench = Bench(backend=Kernels())
    prompts, texts = list[list[int]](), list[list[int]]()
    known = [256]
    for number, (new, tokens) in enumerate(turns):
        prompts.append([*known, *[number] * new])
        texts.append(text(bench, prompts[-1], tokens))
        known = [*prompts[-1], *texts[-1]]
    last = len(turns) - 1
    for each in again:
        last = each % (min(last + 1, len(turns) - 1) + 1)
        assert text(bench, prompts[last], turns[last][1]) == texts[last]
