"""Mode auto with the shipped pair: a text whose parts come from different modes equals that of every single mode."""

from collections.abc import Callable, Iterator
from itertools import cycle

import pytest

from drafter_client import DraftModel, LoadOptions, Mode, Options, Pair
from drafter_client.modes.auto import ModeSelection
from models import DEFAULT_DRAFT
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, running
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference
from verifier_server.settings import Settings


@pytest.fixture(scope="module", params=[True, False], ids=["deterministic", "one thread"])
def verifier_with_draft(request: pytest.FixtureRequest) -> Iterator[Verifier]:
    settings = Settings(
        slots=4, context=CONTEXT, threads=1, deterministic=request.param, draft_model=DEFAULT_DRAFT, draft_threads=1
    )
    with running(settings) as started:
        yield started


def test_auto_mode_writes_the_text_of_every_other_mode(
    verifier_with_draft: Verifier,
    reference: Reference,
    count_flips: Callable[[int, list[float]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not deterministic, it may differ at near-ties: how wide a pass is depends on when a draft arrives."""
    following = cycle([Mode.REMOTE, Mode.FUSED, Mode.TARGET])

    def after_some_tokens(_: ModeSelection, _left: int, mode: Mode | None, written: int, _unread: int) -> Mode:
        return mode if mode is not None and written < 12 else next(following)

    monkeypatch.setattr(ModeSelection, "next", after_some_tokens)
    draft = DraftModel(engine=LoadOptions(threads=1))
    sampling = Sampling(temperature=0.8, seed=3)
    texts, turns, flips = {}, [], list[float]()
    with Pair(verifier_with_draft.url, draft) as pair:
        for mode in (Mode.AUTO, *pair.modes):
            options = Options(max_tokens=220, temperature=sampling.temperature, seed=sampling.seed, mode=mode)
            stats = pair.generate(PROMPTS[0], options).read().stats
            texts[mode] = stats.token_ids
            turns += stats.turns
    assert len(texts) == 4 and len(texts[Mode.TARGET]) == 220
    assert {turn.mode for turn in turns} == {Mode.REMOTE, Mode.FUSED, Mode.TARGET}
    for text in texts.values():
        if text != texts[Mode.TARGET]:
            flips += reference.flips(reference.encode(PROMPTS[0]), text, sampling)
    count_flips(sum(map(len, texts.values())), flips)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"
    if verifier_with_draft.service.settings.deterministic:
        assert all(text == texts[Mode.TARGET] for text in texts.values())
    assert verifier_with_draft.sessions == 0
