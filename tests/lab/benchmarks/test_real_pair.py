"""Recorded texts: kept and read again, and written anew in virtual time by the code that ships."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.benchmarks.harness.kinds import Written
from lab.benchmarks.real_pair import machines, pair, recorded
from lab.benchmarks.real_pair.draft_choices import KEPT, Choices, best
from lab.benchmarks.real_pair.hindsight import Hindsight
from lab.benchmarks.real_pair.machines import DRAFTERS, LINKS, TARGETS, Setting
from lab.benchmarks.real_pair.recorded import RecordedText
from lab.simulator.known_outputs.draft_bound import least_seconds
from lab.simulator.known_outputs.static_policies import MeasuredLatencies
from specpair.speculation.policy.experience import Experience
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.sampling.sampling import Sampling, choose_two

ENDS = frozenset({900, 901})
RIGHT = 0.8  # of the draft model's choices, behind the text itself


def _text(tokens: int = 80, seed: int = 1) -> RecordedText:
    rng = random.Random(seed)
    written = [*(rng.randrange(800) for _ in range(tokens - 1)), 901]
    both = [(0.75, 0.125)] * tokens
    prompt = [rng.randrange(800) for _ in range(12)]
    return RecordedText("code", prompt, Sampling(temperature=0.8, seed=seed), Written(written, [5] * tokens, both))


class Known:
    """Choices of a draft model that is right as often as `RIGHT` says, and never behind a wrong token."""

    def __init__(self, text: RecordedText) -> None:
        rng = random.Random(2)
        self.asked = 0
        self._whole = [*text.prompt, *text.written.tokens]
        self._right = [rng.random() < RIGHT for _ in self._whole]

    def after(self, length: int, tail: Sequence[int]) -> Choices:
        self.asked += 1
        at = length + len(tail)
        follows = [*tail] == self._whole[length:at] and at < len(self._whole)
        first = self._whole[at] if follows and self._right[at] else 850
        return Choices([first, 851, 852, 853, 854, 855], [0.7, 0.1, 0.05, 0.05, 0.01, 0.01])


def test_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    texts = [_text(seed=seed) for seed in range(3)]
    for name in ("one", "other"):
        recorded.write(tmp_path / name, "model", texts)
    assert list(recorded.read(tmp_path / "one")) == texts
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_text_is_written_anew_faster_than_alone(target: str) -> None:
    text = _text()
    setting = Setting(TARGETS[target], DRAFTERS["RTX 4070"], LINKS[0], 0.001)
    choices = Known(text)
    course = pair.write(text, choices, setting, ENDS, Experience())  # which checks that it is the text
    alone = setting.target.cost.seconds([(1, len(text.prompt) + 80)]) * 79
    assert len(course.times) == 79 and course.accepted > 20 and choices.asked
    assert course.times[-1] - course.opened < alone


@pytest.mark.parametrize("target", TARGETS)
def test_server_writes_recorded_text_anew_with_a_draft_model_on_its_device(target: str) -> None:
    text = _text()
    setting = Setting(TARGETS[target], DRAFTERS["M4"], LINKS[0], 0.001)
    times = pair.write_on_server(text, Known(text), setting, ENDS, Experience())  # which checks that it is the text
    alone = setting.target.cost.seconds([(1, len(text.prompt) + 80)]) * 79
    assert len(times) == 79 and times == sorted(times) and times[-1] < alone


def test_server_looks_up_in_recorded_text() -> None:
    setting = Setting(TARGETS["8B on H100"], DRAFTERS["M4"], LINKS[0], 0.001)
    plain, repeated = _text(), _repeating(_text())
    seconds = [pair.write_on_server(each, Known(each), setting, ENDS, Experience())[-1] for each in (plain, repeated)]
    assert seconds[1] < 0.8 * seconds[0]


def test_passes_of_models_on_one_device_take_turns_and_others_overlap() -> None:
    text, setting = _text(), Setting(TARGETS["70B on 2 H100"], DRAFTERS["M4"], LINKS[0], 0.001)
    apart = setting._replace(target=machines.Known(setting.target.cost), drafter=machines.Known(setting.same_box))
    assert setting.one_device and not apart.one_device
    seconds = [pair.write_on_server(text, Known(text), each, ENDS, Experience())[-1] for each in (setting, apart)]
    assert seconds[1] < seconds[0]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, seed=3)])
def test_choices_are_ranked_as_the_text_would_take_them(sampling: Sampling) -> None:
    row = np.random.default_rng(1).standard_normal(500).astype(np.float32) * 3
    ids, probabilities = best(row, sampling, 40)
    assert tuple(ids[:2]) == choose_two(row.copy(), sampling, 40)
    assert len(set(ids)) == KEPT and all(0.0 < each < 1.0 for each in probabilities) and sum(probabilities) < 1.0


def _repeating(text: RecordedText) -> RecordedText:
    """The same text with its first third written three times, so that most of it can be looked up."""
    third = text.written.tokens[:26]
    return replace(text, written=text.written._replace(tokens=[*third, *third, *third, text.written.tokens[-1]]))


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("rtt", [LINKS[0], LINKS[2]])
def test_no_drafter_is_faster_than_its_bound(drafter: str, repeats: bool, rtt: float) -> None:
    text = _repeating(_text()) if repeats else _text()
    choices, setting = Known(text), Setting(TARGETS["8B on H100"], DRAFTERS[drafter], rtt, 0.001)
    hindsight, cached = Hindsight.of(text, choices), len(text.prompt) + len(text.written.tokens)
    times = MeasuredLatencies(
        setting.drafter.cost.seconds([(1, cached)]),
        lambda count: setting.target.cost.seconds([(count + 1, len(text.prompt))]),
        rtt,
        0.001,
    )
    for trees, places in ((False, hindsight.chain), (True, hindsight.tree)):
        course = pair.write(text, choices, setting, ENDS, Experience(), mechanisms=Mechanisms(trees=trees))
        assert course.times[-1] - course.opened >= least_seconds(places, times)


def test_hindsight_knows_ranks_and_what_was_looked_up() -> None:
    text = _repeating(_text())
    hindsight = Hindsight.of(text, Known(text))
    assert len(hindsight.ranks) == 79 and len(hindsight.chain) == len(hindsight.tree) == 78
    assert set(hindsight.ranks) == {0, KEPT}
    assert all(place.free and place.drafted for place in hindsight.chain[27:77])
    assert not any(place.free for place in hindsight.chain[:25])
    for rank, chain, tree in zip(hindsight.ranks[1:], hindsight.chain, hindsight.tree, strict=True):
        assert tree.drafted == tree.prepared == chain.prepared == (rank < KEPT or tree.free)
        assert chain.drafted == (rank == 0 or chain.free) and tree.free >= chain.free
