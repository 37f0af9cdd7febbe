"""What capacity is measured with: the bounds and gaps as computed by hand, and clients that write the plain text."""

import pytest

from backends.scripted import Script, ScriptedBackend
from lab.simulator.costs.linear import LinearCost
from lab.simulator.known_outputs.capacity import FORMS, ClientForm, measure
from lab.simulator.known_outputs.capacity_clients import Client, Replayed, Setting
from lab.simulator.known_outputs.capacity_model import (
    Gaps,
    KnownOutput,
    Metrics,
    lockstep,
    pass_time,
    saturated,
    server_drafting,
    tokens_per_round,
)
from lab.simulator.paced.engine import DRAFTER_8, TARGET_25
from lab.simulator.virtual.world import World

SETTING = Setting(TARGET_25, DRAFTER_8, warm_up=0.5, seconds=1.0)
COST = LinearCost(10.0, 1.0, 0.5)


def test_drafters_agree_as_often_as_is_said() -> None:
    parts = [(text, len(text.prompt), len(text.prompt) + 300) for text in map(KnownOutput, range(10))]
    assert tokens_per_round(parts, 0) == 1.0
    expected = sum(0.8**i for i in range(5))
    assert tokens_per_round(parts, 4) == pytest.approx(expected, rel=0.05)


def test_the_saturated_bound_takes_the_best_draft_length() -> None:
    gains = {0: 1.0, 1: 1.8, 2: 1.9}
    rates = {k: 4 * gain / (0.01 + 0.001 * (4 * (k + 1) - 1) + 3 * 0.0005) for k, gain in gains.items()}
    bound = saturated(COST, 4, gains.__getitem__, gains)
    assert bound.rate == pytest.approx(max(rates.values())) and bound.k == 1


@pytest.mark.parametrize("thinking", [0.0, 0.003, 0.03])
def test_the_lockstep_bound_is_the_better_of_one_group_and_two(thinking: float) -> None:
    one_group = pass_time(COST, 8, 3) + thinking
    two_groups = 2 * pass_time(COST, 4, 3)
    alone = pass_time(COST, 1, 3) + thinking
    expected = 8 * 2.0 / max(alone, min(one_group, two_groups))
    assert lockstep(COST, 8, 2.0, 2, thinking) == pytest.approx(expected)


def test_drafting_on_the_server_adds_its_steps_to_each_cycle() -> None:
    cycle = 2 * pass_time(COST, 4, 1) + pass_time(TARGET_25, 4, 3)
    assert server_drafting(TARGET_25, COST, 4, 2.5, 2) == pytest.approx(2.5 / cycle)


def test_tokens_that_come_together_share_the_gap_before_them() -> None:
    gaps = Gaps.of([1.0, 2.0, 2.0, 5.0, 9.0], start=1.5, end=6.0)
    assert gaps.tokens == [0.5, 0.5, 3.0]
    assert gaps.arrivals == [1.0, 3.0]


def test_a_rate_is_that_of_whole_gaps() -> None:
    steady = [0.25 * number for number in range(40)]
    for start in (1.0, 1.1, 1.24):
        metrics = Metrics.of([steady, steady], start, start + 3.1)
        assert metrics.rate == pytest.approx(8.0) and metrics.each == pytest.approx(4.0)
        assert metrics.p50 == metrics.worst_p95 == metrics.arrivals_p95 == 0.25


@pytest.mark.parametrize("name", FORMS)
def test_no_form_beats_the_bound(name: str) -> None:
    outcome = measure(FORMS[name], 3, SETTING)
    bound = saturated(TARGET_25, 3, lambda k: tokens_per_round(outcome.parts, k))
    assert 0 < outcome.metrics.rate < 1.05 * bound.rate
    assert outcome.busy < 1.1
    assert (outcome.sessions == 1.0) or "one by one" not in name


@pytest.mark.parametrize("name", FORMS)
def test_clients_write_the_text_of_plain_decoding(name: str) -> None:
    crowd: list[Client] = []

    def client(world: World, text: KnownOutput, setting: Setting, session: str) -> Client:
        crowd.append(FORMS[name].client(world, text, setting, session))
        return crowd[-1]

    measure(ClientForm(client, FORMS[name].one_by_one), 2, SETTING)
    for each in crowd:
        plain, start = ScriptedBackend(Script(seed=1)), len(each.text.prompt)
        said = list(each.text.prompt)
        while len(said) < len(each.session.tokens):
            said.append(int(plain.logits_after(said).argmax()))
        assert len(said) > start + 10 and each.session.tokens == said


def test_a_text_that_is_not_the_targets_is_an_error() -> None:
    class Wrong(Replayed):
        def start(self) -> None:
            self.session.tokens[-1] += 1
            super().start()

    with pytest.raises(RuntimeError, match="the text of session-0 is not the target"):
        measure(ClientForm(Wrong), 1, SETTING)


def test_many_drafters_do_not_slow_each_other_where_drafts_are_dear() -> None:
    """Each alone would send so many that together they were slower than the target by itself."""
    dear = Setting(LinearCost(25.0, 1.0, 0.2), DRAFTER_8, warm_up=1.0, seconds=1.5)
    ours, target = (measure(FORMS[name], 24, dear).metrics.rate for name in ("ours", "target"))
    assert ours > target
