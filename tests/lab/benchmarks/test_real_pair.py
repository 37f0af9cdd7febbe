"""Recorded texts: kept and read again, and written anew in virtual time by the code that ships."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from lab.benchmarks.real_pair import pair, recording
from lab.benchmarks.real_pair.pair import DRAFTERS, LINKS, TARGETS, Setting
from lab.benchmarks.real_pair.recording import Choices, RecordedText, TextChoices, choices_of
from specpair.speculation.policy.experience import Experience
from specpair.speculation.sampling.sampling import Sampling, choose

ENDS = frozenset({900, 901})
RIGHT = 0.8  # of the draft model's choices, behind the text itself


def _text(tokens: int = 80, seed: int = 1) -> RecordedText:
    rng = random.Random(seed)
    written = [*(rng.randrange(800) for _ in range(tokens - 1)), 901]
    prompt = [rng.randrange(800) for _ in range(12)]
    return RecordedText("code", prompt, Sampling(temperature=0.8, seed=seed), written)


def _known(text: RecordedText) -> TextChoices:
    """Choices of a draft model that is right as often as `RIGHT` says."""
    rng = random.Random(2)
    firsts = [token if rng.random() < RIGHT else 850 for token in text.tokens]
    chances = [0.7, 0.1, 0.05, 0.05, 0.01, 0.01]
    return TextChoices(text, [Choices([first, 851, 852, 853, 854, 855], chances) for first in firsts])


def _setting(target: str, drafter: str) -> Setting:
    return Setting(TARGETS[target], DRAFTERS[drafter], LINKS[0], 0.001)


def test_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    texts = [_text(seed=seed) for seed in range(3)]
    for name in ("one", "other"):
        recording.write(tmp_path / name, "model", texts)
    assert list(recording.read(tmp_path / "one")) == texts
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_text_is_written_anew_faster_than_alone(target: str) -> None:
    text = _text()
    near, far = _setting(target, "RTX 4070"), _setting(target, "M4")
    alone = near.target.cost.seconds([(1, len(text.prompt) + 80)]) * 79
    course = pair.write(text, _known(text), near, ENDS, Experience())  # which checks that it is the text
    assert len(course.times) == 79 and course.accepted > 20
    assert course.times[-1] - course.opened < alone
    times = pair.write_on_server(text, _known(text), far, ENDS, Experience())  # as well
    assert len(times) == 79 and times == sorted(times) and times[-1] < alone


def test_server_looks_up_in_recorded_text() -> None:
    setting, plain = _setting("8B on H100", "M4"), _text()
    third = plain.tokens[:26]
    repeated = replace(plain, tokens=[*third, *third, *third, plain.tokens[-1]])
    seconds = [pair.write_on_server(each, _known(each), setting, ENDS, Experience())[-1] for each in (plain, repeated)]
    assert seconds[1] < 0.8 * seconds[0]


def test_draft_model_is_asked_behind_the_text_alone() -> None:
    sampling = Sampling(temperature=0.8, seed=3)
    model, target = (ScriptedBackend(Script(agreement=agreement), context_length=256) for agreement in (0.6, 1.0))
    whole = [256, 1, 2, 3]
    while len(whole) < 104:
        whole.append(choose(target.logits_after(whole), sampling, len(whole)))
    choices = choices_of(model, RecordedText("code", whole[:4], sampling, whole[4:]))
    firsts = [choose(model.logits_after(whole[:at]), sampling, at) for at in range(4, 104)]
    assert [choices.after(at, ()).ids[0] for at in range(4, 104)] == firsts
    assert choices.agrees == [first == token for first, token in zip(firsts, whole[4:], strict=True)]
    assert choices.after(10, whole[10:20]) == choices.after(20, ()), "the tail is the text"
    made_up = choices.after(10, [700, 701])
    assert made_up.probabilities == choices.after(12, ()).probabilities and min(made_up.ids) > model.vocabulary.size
