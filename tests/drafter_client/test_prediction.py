"""A prediction of the text: the text stays the target's in every mode; draft tokens are taken from the prediction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import Custom, DraftModel, Lookup, Mode, Options, Pair, Source, Strategy, Tokens
from drafter_client.errors import BadOption
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Held, Scenario, Verifier, forget_all, plain, serving

PROMPT = "def f(x):"
LENGTH = 120
TARGET = ScriptedBackend(Script(seed=1))
TOY = DraftModel(Path("1"), "scripted")
JUNK = Custom(lambda vocabulary, sampling: Scenario(lambda tokens: len(tokens) % 256, 0.1), "junk")
SOURCES: dict[str, Source] = {"model": TOY, "lookup": Lookup(), "junk": JUNK}


def expected(options: Options) -> list[int]:
    return plain(TARGET, TARGET.vocabulary.encode(PROMPT), options.max_tokens, options.sampling)


TEXT = expected(Options(max_tokens=LENGTH))
EDITED = [*TEXT[:20], 3, *TEXT[20:50], *TEXT[53:70], 4, 5, *TEXT[72:]]
PREDICTIONS: dict[str, Sequence[int] | str] = {"good": TEXT, "edited": EDITED, "absurd": [9] * 500, "empty": ""}


@pytest.mark.parametrize(
    ("source", "lockstep", "temperature"),
    [  # each two values together once
        *[("model", False, 0.0), ("model", True, 0.9)],
        *[("lookup", False, 0.9), ("lookup", True, 0.0)],
        *[("junk", False, 0.0), ("junk", True, 0.9)],
    ],
)
def test_the_text_does_not_depend_on_the_prediction(
    verifier: Verifier, source: str, lockstep: bool, temperature: float
) -> None:
    with Pair(verifier.url, SOURCES[source]) as pair:
        for prediction in PREDICTIONS.values():
            options = Options(
                max_tokens=LENGTH, temperature=temperature, seed=3, prediction=prediction, lockstep=lockstep
            )
            text = pair.generate(PROMPT, options).read()
            assert text.token_ids == expected(options)
            stats = text.stats
            assert stats.prediction_tokens == len(prediction)
            assert stats.prediction_accepted <= stats.accepted
            assert stats.prediction_accepted + stats.prediction_rejected <= stats.drafted


@pytest.mark.parametrize("draft", [None, TOY], ids=["no drafter", "a drafter"])
def test_the_verifier_drafts_from_a_prediction_without_a_draft_model(verifier: Verifier, draft: Source | None) -> None:
    with Pair(verifier.url, draft) as pair:
        assert Mode.FUSED not in pair.modes
        options = Options(max_tokens=LENGTH, prediction=EDITED, mode=Mode.FUSED, draft_n=8)
        text = pair.generate(PROMPT, options).read()
        assert text.token_ids == TEXT and text.stats.draft_model == "n-gram lookup"
        assert text.stats.prediction_accepted > 60 and text.stats.rounds < LENGTH / 3
        with pytest.raises(BadOption, match="has no draft model"):
            pair.generate(PROMPT, Options(mode=Mode.FUSED))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"prediction": 5}, "prediction must be text or token ids, got int"),
        ({"prediction": [1, "a"]}, "prediction must be text or token ids"),
        ({"prediction": [True]}, "prediction must be text or token ids"),
        ({"prediction": "a", "mode": Mode.TARGET}, "in mode target nothing is drafted"),
        ({"prediction": "a", "strategy": Strategy.GREEDY}, "the strategy greedy accepts no draft tokens"),
    ],
)
def test_a_prediction_that_makes_no_sense_is_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        Options(**given)


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.FUSED])
def test_a_resumed_text_goes_on_where_the_prediction_stands(mode: Mode) -> None:
    backend = Held(Script(seed=1))
    options = Options(max_tokens=LENGTH, prediction=EDITED, mode=mode, lockstep=True, draft_n=8)
    tokens: list[int] = []
    with serving(backend) as verifier, Pair(verifier.url, JUNK) as pair, pair.generate(PROMPT, options) as text:
        backend.go(len(PROMPT) + 60)
        for event in text:
            assert isinstance(event, Tokens) or event.token_ids == TEXT
            if isinstance(event, Tokens):
                lost = len(tokens) < 30 <= len(tokens) + len(event.tokens)
                tokens += [token.id for token in event.tokens]
                if lost:
                    forget_all(verifier)
                    backend.go()
    assert tokens == TEXT and text.stats.resumed
    assert mode is Mode.FUSED or text.stats.prediction_accepted > 75, "the summary of a broken stream is lost"
    assert text.stats.rounds < LENGTH / 3


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--mode", "target"), "--prediction: with --mode target nothing drafts, leave one of the two out"),
        (("--strategy", "greedy"), "--prediction: --strategy greedy accepts no draft tokens, leave one of the two out"),
        (("--prompt-file", "x"), "--prediction: is of one text"),
        (("--prediction-file", "x"), "not allowed with"),
    ],
)
def test_flags_that_do_not_go_with_a_prediction(drafter: Command, flags: tuple[str, ...], complaint: str) -> None:
    prompt = () if "--prompt-file" in flags else ("--prompt", "a")
    ran = drafter("--prediction", "b", *prompt, *flags)
    assert ran.status == 2 and complaint in ran.err
