"""Recorded texts, written anew in virtual time; and ours against llama-server: its replies, and what is said of it."""

import json
import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.statistics import Stats
from lab.benchmarks.harness.report import Report
from lab.benchmarks.harness.texts import Written
from lab.benchmarks.real_pair import pair, recording
from lab.benchmarks.real_pair.compute import TextKey, keep, mean, ratios, read
from lab.benchmarks.real_pair.llama_server import ALONE, UNTOLD, ServerFailed, completed, events
from lab.benchmarks.real_pair.pair import DRAFTERS, LINKS, TARGETS, Setting
from lab.benchmarks.real_pair.recording import DraftChoices, RecordedText, TextChoices, choices_of
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
    return TextChoices(text, [DraftChoices([first, 851, 852, 853, 854, 855], chances) for first in firsts])


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


def told(tokens: list[int], predicted: int) -> dict[str, Any]:
    return {"tokens": tokens, "tokens_predicted": predicted, "stop": False}


def last(predicted: int, stop_type: str = "limit", **timings: int) -> dict[str, Any]:
    times = {"predicted_n": predicted, **timings}
    return {"tokens": [], "tokens_predicted": predicted, "stop": True, "stop_type": stop_type, "timings": times}


@pytest.mark.parametrize(
    ("arrived", "text"),
    [
        (
            [(2.0, told([5], 1)), (2.5, told([6], 2)), (4.0, told([7], 3)), (9.0, last(3, draft_n=4))],
            Written([5, 6, 7], 1000.0, 2.0, Stats(drafted=4)),
        ),
        (
            [(2.0, told([5], 1)), (3.0, told([8], 4)), (3.0, last(5))],
            Written([5, UNTOLD, UNTOLD, 8, UNTOLD], 1000.0, 1.0),
        ),
        ([(2.0, told([5], 1)), (3.0, told([2], 2)), (3.0, last(2, "eos"))], Written([5], 1000.0, 1.0)),
    ],
    ids=["times are the client's", "tokens that were not told are counted", "an end token is no text"],
)
def test_a_text_of_llama_server(arrived: list[tuple[float, Any]], text: Written) -> None:
    assert completed(1.0, arrived) == text


def test_events_are_read_and_errors_raised() -> None:
    lines = ["", 'data: {"tokens": [1]}', ": comment", "data: [DONE]"]
    assert list(events(lines)) == [{"tokens": [1]}]
    for line in ('error: {"code": 500}', "data: " + json.dumps({"error": {"code": 500}})):
        with pytest.raises(ServerFailed, match="500"):
            list(events([line]))
    with pytest.raises(ServerFailed, match="without its timings"):
        completed(0.0, [(1.0, told([5], 1))])


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report("real_pair.compute", Namespace(), folder=tmp_path)


def kept(report: Report, kind: str, repeat: int, way: str, seconds: float) -> None:
    keep(report, TextKey(kind, 0.0, repeat), way, Written(list(range(11)), 50.0, seconds, Stats(drafted=8, accepted=6)))


def test_figures_are_medians_of_ratios_to_llama_server_alone_in_the_same_repeat(report: Report) -> None:
    for repeat, (alone, theirs, mine) in enumerate([(4.0, 2.0, 1.0), (8.0, 4.0, 2.0), (4.0, 4.0, 4.0)]):
        kept(report, "code", repeat, ALONE, alone)
        kept(report, "code", repeat, "draft-simple 3", theirs)
        kept(report, "code", repeat, "ours, remote", mine)
    kept(report, "story", 0, ALONE, 4.0)
    kept(report, "story", 0, "draft-simple 3", 8.0)
    kept(report, "story", 0, "ours, remote", 4.0)
    kept(report, "story", 0, "ours, fused", 4.0)
    found = ratios(read(report))
    assert found["draft-simple 3"] == {"code": 2.0, "story": 0.5}
    assert mean(found["ours, remote"]) == pytest.approx(2.0)
    assert "ours, fused" not in found, "it has not written every kind"
