"""Fixtures of the conformance tests: each engine in turn, empty at the start of each test."""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from specpair.engines.backend import Backend, Entry, Logits
from tests.conformance.backends import CONTEXT, Candidate, TorchOn, candidates

TEXT = '''import os


def read_lines(path, encoding="utf-8"):
    """Return the lines of the file, without their ends."""
    with open(path, encoding=encoding) as file:
        return [line.rstrip() for line in file]


class Reader:
    def __init__(self, path):
        self.path = path
        self.lines = read_lines(path)

    def __repr__(self):
        return "<%s %r>" % (self.__class__.__name__, self.path)

    def __len__(self):
        return len(self.lines)
'''


class Subject:
    """An engine under test, with helpers for the tests."""

    def __init__(self, candidate: Candidate) -> None:
        self.backend: Backend = candidate.load()
        self.candidate, self.tolerance = candidate, candidate.tolerance
        self.ids = self.backend.vocabulary.encode(TEXT)
        self.full = (self.ids * CONTEXT)[:CONTEXT]  # as many as a slot holds

    def feed(self, slot: int, start: int, tokens: Sequence[int], logits_from: int = 0) -> Logits:
        """Run one pass over one slot. Returns a copy of its logits."""
        return self.backend.extend([Entry(slot, start, tokens, logits_from)])[0].copy()

    def fresh(self, tokens: Sequence[int]) -> Logits:
        """Logits after each of `tokens`, computed in an empty slot, which is emptied again afterwards."""
        slot = self.backend.slots - 1
        self.backend.release(slot)
        logits = self.feed(slot, 0, tokens)
        self.backend.release(slot)
        return logits

    def same(self, left: Logits, right: Logits) -> bool:
        """Whether two computations gave the same logits, within the tolerance of this engine."""
        assert left.shape == right.shape
        if not self.tolerance:
            return np.array_equal(left, right)
        return bool(np.abs(left - right).max(initial=0.0) <= self.tolerance)

    def differ(self, left: Logits, right: Logits) -> bool:
        """Whether every row of logits differs by far more than the tolerance, as after different texts."""
        distance = np.abs(np.nan_to_num(left, neginf=0.0) - np.nan_to_num(right, neginf=0.0)).max(axis=-1)
        return bool(np.all(distance > max(4 * self.tolerance, 0.1)))


@cache  # an engine that is loaded stays so only from test to test with the very same parameter
def _parameters(torch: TorchOn) -> list[ParameterSet]:
    return [
        pytest.param(each, id=each.name, marks=[] if each.engine is None else [pytest.mark.engine(each.engine)])
        for each in candidates(torch)
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "loaded" in metafunc.fixturenames:
        torch = TorchOn(metafunc.config.getoption("--torch-device"), metafunc.config.getoption("--torch-dtype"))
        metafunc.parametrize("loaded", _parameters(torch), indirect=True, scope="package")


@pytest.fixture(scope="package")
def loaded(request: pytest.FixtureRequest) -> Iterator[Subject]:
    subject = Subject(request.param)
    yield subject
    subject.backend.close()


@pytest.fixture
def subject(loaded: Subject) -> Subject:
    for slot in range(loaded.backend.slots):
        loaded.backend.release(slot)
    return loaded
