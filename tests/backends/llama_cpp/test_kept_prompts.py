"""The same request gives the same bits again on llama.cpp, whatever the verifier still holds of it."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from backends.registry import load
from models import DEFAULT_TARGET
from specpair.engines.backend import Backend, Logits
from specpair.engines.load_options import LoadOptions
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.scheduler import Scheduler
from verifier_server.sessions import Session

DOCUMENT = [5 + 7 * at % 190 for at in range(150)]


class Texts:
    """Texts of a scheduler over an engine, one after the other."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._scheduler = backend, Scheduler(backend)
        self._opened, self.read = 0, 0  # `read`: tokens of the last prompt that passes read

    def write(self, prompt: Sequence[int], tokens: int) -> tuple[list[int], Logits]:
        """A text at temperature 0, and the logits of its tokens."""
        self._opened += 1
        spec = TextSpec.of(Sampling())
        session = Session(str(self._opened), list(prompt), len(prompt), spec, len(prompt) + tokens, ends=())
        self._scheduler.submit(Request(session, Draft.chain(len(prompt), []), lambda _: None, until_end=True), 0.0)
        rows = list[Logits]()
        while session.finish_reason is None:
            plan = self._scheduler.plan(0.0)
            assert plan is not None
            [found] = brought = self._backend.extend(plan.batch)
            rows += [row.copy() for row in found]
            self._scheduler.conclude(plan, brought, 0.0, 0.0)
        self._scheduler.forget(session)
        self.read = len(prompt) - session.cached_tokens
        return session.tokens[len(prompt) :], np.array(rows)


@contextmanager
def texts(model: Path, slots: int = 2) -> Iterator[Texts]:
    options = LoadOptions(model, slots, 1024, batch_tokens=256, threads=1)
    with closing(load("llama_cpp", options)) as backend:
        yield Texts(backend)


@pytest.fixture(params=["shipped", "quantised", "in_floats"])
def model(request: pytest.FixtureRequest) -> Path:
    if request.param == "shipped":
        return DEFAULT_TARGET
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Path)
    return found


def same(left: tuple[list[int], Logits], right: tuple[list[int], Logits]) -> bool:
    return left[0] == right[0] and np.array_equal(left[1], right[1])


@pytest.mark.parametrize("length", [20, 63, 64, 70, 150])
def test_the_same_request_has_the_same_bits(model: Path, length: int) -> None:
    with texts(model) as written:
        first = written.write(DOCUMENT[:length], 4)
        assert written.read == length
        for _ in range(2):
            assert same(written.write(DOCUMENT[:length], 4), first)
            assert written.read < 12 + 20


@pytest.mark.parametrize("new", [3, 30, 90])
def test_turns_of_a_chat_have_the_same_bits_again(model: Path, new: int) -> None:
    """Each turn twice, then all of them: their answers are held by then."""
    with texts(model) as written:
        turns, firsts = [DOCUMENT], list[tuple[list[int], Logits]]()
        for number in range(3):
            firsts.append(written.write(turns[-1], 12))
            if number:
                assert written.read <= max(new + 1, 8) + 15, "it reads what is new"
            assert same(written.write(turns[-1], 12), firsts[-1])
            turns.append([*turns[-1], *firsts[-1][0], *(9 + number for _ in range(new))])
        for turn, first in zip(turns, firsts, strict=False):
            assert same(written.write(turn, 12), first)


def test_a_prompt_has_the_same_bits_behind_another_that_begins_alike(model: Path) -> None:
    """In the same slot: in another one, attention sums in another order."""
    with texts(model, slots=1) as written:
        questions = [DOCUMENT + [20 + at] * length for at, length in enumerate((10, 40, 2, 90))]
        firsts = []
        for question in questions:
            with texts(model, slots=1) as alone:
                firsts.append(alone.write(question, 4))
        for question, first in zip(questions, firsts, strict=True):
            assert same(written.write(question, 4), first)
        assert written.read < len(questions[-1])
