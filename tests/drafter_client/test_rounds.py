"""Rounds, drafts and tokens add up on every run, however guesses overlap; and with what the verifier did."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.client import VerifierClient
from drafter_client.origin import Origin
from drafter_client.stats import Stats
from drafting.model import ModelDrafter
from speculation.acceptance import Strategy
from speculation.operation import LOCKSTEP, Mechanisms
from speculation.sampling import Sampling
from tests.drafter_client.support import GREEDY, WARM, WAYS, Paced, generate, options_of, serving, toy_drafter
from verifier_server.scheduler import Scheduler

EVERY_WAY = {"lockstep": LOCKSTEP, **WAYS}
ALL_WAYS = pytest.mark.parametrize("mechanisms", EVERY_WAY.values(), ids=EVERY_WAY)


@dataclass
class Passes:
    """What a verifier ran."""

    asked: int = 0  # passes that a guess was judged in, or that gave a step asked for
    judged: int = 0  # drafts
    own: int = 0  # steps that nobody asked for


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Of all verifiers of a test; but for the prompts'."""
    seen, commit = Passes(), Scheduler._commit

    def watched(self: Scheduler, part: Any, *rest: Any) -> None:
        commit(self, part, *rest)
        if part.run is None:
            seen.own += 1
        elif part.run.position > part.seat.session.prompt_len:
            seen.asked += 1
            seen.judged += len(part.fresh)

    monkeypatch.setattr(Scheduler, "_commit", watched)
    return seen


def check(stats: Stats, ends_with_a_draft: bool = False) -> None:
    """Each token is the first, a draft that stood, the target's own word of a round, or one that nobody asked for."""
    origins = stats.origins
    assert origins.total() == stats.generated_tokens
    assert origins[Origin.ACCEPTED] == stats.accepted <= stats.drafted
    assert origins[Origin.FREE] + origins[Origin.CORRECTION] == 1 + stats.rounds - ends_with_a_draft
    assert stats.rounds <= stats.guesses


@ALL_WAYS
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize("agreement", [0.0, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("pass_ms", [0.0, 2.0])
def test_every_pass_is_counted_once(
    passes: Passes, mechanisms: Mechanisms, sampling: Sampling, length: int | None, agreement: float, pass_ms: float
) -> None:
    with serving(Paced(pass_ms)) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter = toy_drafter(agreement, sampling)
        stats = generate(client, drafter, length, mechanisms=mechanisms, **options_of(sampling, 120)).stats
    check(stats)
    assert (stats.rounds, stats.drafted, stats.origins[Origin.OWN]) == (passes.asked, passes.judged, passes.own)
