"""Drafters that fail or break their contract: the target writes the rest alone; a custom one is named in the error."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import Custom, DraftModel, Expansion, Mode, Options, Pair, Proposal, Strategy
from drafter_client.display.panel_rows import notes
from drafter_client.errors import BadDrafter
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineLost
from tests.drafter_client.support import Verifier, plain

PROMPT = "def f(x):"
TOY = DraftModel(Path("1"), "scripted")
ERRORS = [
    (RuntimeError("CUDA error: an illegal memory access\nmore of it"), "CUDA error: an illegal memory access"),
    (MemoryError(), "MemoryError()"),
    (EngineLost("the GPU fell out"), "the GPU fell out"),
]


@pytest.fixture(params=ERRORS, ids=lambda each: type(each[0]).__name__)
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The draft engine fails from its second pass on. The value is the expected message."""
    error, message = request.param
    passes = 0

    class Failing(ScriptedBackend):
        def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
            nonlocal passes
            passes += 1
            if passes >= 2:
                raise error
            return super()._forward(batch)

    monkeypatch.setattr(
        "drafter_client.draft_sources.load_draft", lambda *_: Failing(Script(seed=1, agreement=0.8), slots=6)
    )
    return message


@pytest.mark.parametrize(
    "how",
    [{}, {"draft_n": 3}, {"lockstep": True}, {"draft_n": 3, "lockstep": True}, {"lookup": False}],
    ids=str,
)
def test_text_continues_and_statistics_report_the_failure(
    verifier: Verifier, failing: str, how: dict[str, Any]
) -> None:
    options = Options(max_tokens=60, temperature=0.9, seed=5, mode=Mode.REMOTE, **how)
    target = ScriptedBackend(Script(seed=1))
    expected = plain(target, target.vocabulary.encode(PROMPT), 60, options.sampling)
    with Pair(verifier.url, TOY) as pair:
        for _ in range(2):  # in the second text the engine fails from the start
            done = pair.generate(PROMPT, options.cold()).read()
            assert done.token_ids == expected
            assert done.stats.draft_failure == done.stats.metrics()["draft_failure"] == failing
            assert notes(done.stats) == [f"the draft model failed, the target wrote the rest alone: {failing}"]


@pytest.mark.parametrize("strategy", [Strategy.PROBABILISTIC, Strategy.GREEDY, Strategy.DETERMINISTIC])
def test_text_continues_under_every_strategy(verifier: Verifier, failing: str, strategy: Strategy) -> None:
    with Pair(verifier.url, TOY) as pair:
        done = pair.generate(PROMPT, Options(max_tokens=40, temperature=0.9, strategy=strategy, draft_n=3)).read()
    assert len(done.token_ids) == 40
    assert done.stats.draft_failure == failing


def test_auto_continues_in_another_mode_and_keeps_no_measurement(
    verifier: Verifier, failing: str, tmp_path: Path
) -> None:
    target, options = ScriptedBackend(Script(seed=1)), Options(max_tokens=60, temperature=0.9, seed=5, mode=Mode.AUTO)
    with Pair(verifier.url, TOY, memory=tmp_path / "modes.json") as pair:
        done = pair.generate(PROMPT, options).read()
    assert done.token_ids == plain(target, target.vocabulary.encode(PROMPT), 60, options.sampling)
    assert done.stats.draft_failure == failing and not [*tmp_path.iterdir()]


GOOD = Proposal(5, 0.5)


class Constant:
    """Returns the same for every call."""

    def __init__(self, returned: Any, width: Any = 1) -> None:
        self.returned, self.width = returned, width

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Any:
        return self.returned


def _run(verifier: Verifier, drafter: Any, **options: Any) -> None:
    with Pair(verifier.url, Custom(lambda *_: drafter, "my drafter"), branches=1) as pair:
        pair.generate("def f(x):", Options(max_tokens=900, lookup=False, **options)).read()


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "must return an Expansion"),
        ([], "must return an Expansion"),
        (Expansion([], 1), "a proposal for each of 1 tails"),
        (Expansion([GOOD, GOOD], 1), "a proposal for each of 1 tails"),
        (Expansion([GOOD], -1), "how many tokens it read, not -1"),
        (Expansion([GOOD], None), "how many tokens it read, not None"),  # type: ignore[arg-type]
        (Expansion([5], 1), "with a Proposal, not 5"),  # type: ignore[list-item]
        (Expansion([Proposal(-1, 0.5)], 1), "token ids from 0 to 257, not -1"),
        (Expansion([Proposal(258, 0.5)], 1), "token ids from 0 to 257, not 258"),
        (Expansion([Proposal(True, 0.5)], 1), "token ids from 0 to 257, not True"),
        (Expansion([Proposal(5, 0.5, 999)], 1), "token ids from 0 to 257, not 999"),
        (Expansion([Proposal(5, float("nan"))], 1), "give a confidence from 0 to 1, not nan"),
        (Expansion([Proposal(5, 1.5)], 1), "give a confidence from 0 to 1, not 1.5"),
        (Expansion([Proposal(5, 0.5, None, {6: 1.0})], 1), "draws 5 from {6: 1.0}, which does not contain it"),
    ],
)
def test_invalid_expansions_are_refused(verifier: Verifier, returned: Any, complaint: str, lockstep: bool) -> None:
    with pytest.raises(BadDrafter, match=f"^my drafter .*{complaint}"):
        _run(verifier, Constant(returned), lockstep=lockstep)
    assert verifier.sessions == 0


@pytest.mark.parametrize(
    "drafter", [None, 5, Constant(None, width=0), Constant(None, width="x"), Constant(None, width=1.5)]
)
def test_objects_that_are_no_drafter_are_refused(verifier: Verifier, drafter: Any) -> None:
    with pytest.raises(BadDrafter, match=r"^my drafter is no drafter: it needs a method expand, and a width of"):
        _run(verifier, drafter)
