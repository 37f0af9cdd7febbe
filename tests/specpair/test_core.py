"""The module that teaches the words: its story names what it gives, and its round is one of the product's."""

import doctest
import re
from contextlib import closing

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair import core
from specpair.core import Strategy, TextSpec, TokenSource, one_round
from specpair.drafters.draft_model import ModelDrafter


def test_the_story_names_each_word_in_its_order() -> None:
    assert core.__doc__ is not None
    assert list(dict.fromkeys(re.findall(r"`(\w+)`", core.__doc__))) == core.__all__
    assert all(hasattr(core, name) for name in core.__all__)


def test_the_example_runs() -> None:
    assert doctest.testmod(core).failed == 0


def _text(spec: TextSpec, length: int, agreement: float = 0.7) -> tuple[list[int], list[TokenSource | None]]:
    """A text of a real engine by `one_round`, 40 tokens or a few more, and the sources of these tokens."""
    text, sources = [1, 2, 3], list[TokenSource | None]()
    with closing(ScriptedBackend(Script())) as target, closing(ScriptedBackend(Script(agreement=agreement))) as draft:
        drafter = ModelDrafter(draft, spec.sampling, target.vocabulary.size, draws=spec.strategy.draws)
        while len(sources) < 40:
            target.release(0)
            target.extend([core.Entry(0, 0, text[:-1], len(text) - 1)])
            sources += [mark.source for mark in one_round(text, spec, drafter, target.extend, length).sources]
    return text[3:], sources


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_the_target_s_for_any_drafts(temperature: float) -> None:
    spec = TextSpec(seed=5, temperature=temperature)
    alone, sources = _text(spec, 0)
    assert set(sources) == {TokenSource.BONUS}
    drafted, sources = _text(spec, 4)
    assert drafted[:40] == alone[:40]
    assert set(sources) == {TokenSource.ACCEPTED, TokenSource.RECOVERED, TokenSource.BONUS}


@pytest.mark.parametrize("strategy", Strategy)
def test_a_round_runs_by_every_strategy(strategy: Strategy) -> None:
    spec = TextSpec(seed=5, temperature=1.0, strategy=strategy, threshold=0.3 if strategy == "threshold" else None)
    tokens, sources = _text(spec, 3)
    assert len(tokens) == len(sources)
    assert (TokenSource.ACCEPTED in sources) is (strategy is not Strategy.GREEDY)
