"""Fixtures with the shipped pair: the target behind a real HTTP server, and drafters of every kind."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from drafter_client.http.client import VerifierClient
from models import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN
from specpair.drafters.base import Drafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Scenario, Verifier, running
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference, model
from verifier_server.settings import Settings

DRAFTERS = {"small draft": DEFAULT_DRAFT, "q4 twin": DEFAULT_TWIN, "target itself": DEFAULT_TARGET}
MakeDrafter = Callable[..., Drafter]
CountFlips = Callable[..., None]
_counted: list[tuple[str, int, list[float]]] = []


@pytest.fixture(scope="session")
def reference() -> Iterator[Reference]:
    with model(DEFAULT_TARGET) as backend:
        yield Reference(backend)


@pytest.fixture(scope="session")
def verifier() -> Iterator[Verifier]:
    """The default target with default settings, on one thread."""
    with running(Settings(slots=2, context=CONTEXT, threads=1)) as started:
        yield started


@pytest.fixture
def client(verifier: Verifier) -> Iterator[VerifierClient]:
    with closing(VerifierClient(verifier.url)) as opened:
        yield opened


@pytest.fixture(scope="session")
def make_drafter() -> Iterator[MakeDrafter]:
    """Makes drafters by name. Every model is loaded once."""
    loaded: dict[tuple[str, bool], Backend] = {}
    with ExitStack() as stack:

        def make(
            name: str, sampling: Sampling = Sampling(), *, deterministic: bool = False, draws: bool = False
        ) -> Drafter:
            if name == "junk":
                return Scenario(lambda tokens: (31 * tokens[-1] + len(tokens)) % 4096)
            if (name, deterministic) not in loaded:
                opened = model(DRAFTERS[name], branches=3, deterministic=deterministic)
                loaded[name, deterministic] = stack.enter_context(opened)
            return ModelDrafter(loaded[name, deterministic], sampling, draws=draws)

        yield make


@pytest.fixture
def count_flips(request: pytest.FixtureRequest) -> CountFlips:
    """Record the flips among a number of tokens, for the summary of the test run. They must be near-ties."""

    def count(tokens: int, flips: list[float], below: float = EPSILON) -> None:
        _counted.append((request.node.name, tokens, flips))
        assert all(margin < below for margin in flips), f"differs at more than near-ties: {flips}"

    return count


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the near-ties that were decided differently than in plain decoding."""
    if not _counted:
        return
    total = sum(len(flips) for _, _, flips in _counted)
    terminalreporter.section("near-ties")
    terminalreporter.line(
        f"{total} flips in {sum(tokens for _, tokens, _ in _counted)} tokens (allowed below {EPSILON})"
    )
    for name, tokens, flips in _counted:
        if flips:
            terminalreporter.line(f"{name}: {len(flips)} in {tokens} tokens, the largest at {max(flips):.4f}")
