"""Fleets in virtual time: every request is answered once and rightly, the same seed gives the same records, and what is
known of policies, failures and autoscaling is seen."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import pytest

from drafter_client.http.retries import PATIENCE
from gateway.balancing import KNOWN, Jsq2, Policy, Random
from lab.simulator.costs.linear import LinearCost
from lab.simulator.drafting.drafter import EngineDrafter
from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.fleet.conversation import Conversation, Turn
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import Record, Status
from lab.simulator.fleet.settings import Autoscaling, Breakdowns, DeviceKind, Failure, FleetMode, FleetSetting
from lab.simulator.fleet.text import Agreeing, Choices, RuleTarget, Text
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import World
from tests.lab.simulator.fleet.fleets import DEVICE, KIND, TWO, Kept, conversations, run


def check(records: list[Record], conversations: int, turns: int = 2) -> None:
    """Every request was answered once, to its end, and its times are in order."""
    expected = [(f"c{number}", turn) for number in range(conversations) for turn in range(turns)]
    assert [(each.conversation, each.turn) for each in records] == expected
    for each in records:
        assert len(each.times) == each.output_tokens
        assert each.times == sorted(each.times) and each.sent < each.first
        assert each.accepted <= each.drafted


@pytest.mark.parametrize("mode", FleetMode)
def test_every_request_is_answered_once_although_a_verifier_is_lost(mode: FleetMode) -> None:
    setting = replace(TWO, devices=(replace(DEVICE, mode=mode),), failures=(Failure("a", 0.6, 1.5),))
    records, fleet = run(setting, conversations(8, 0.05))
    check(records, 8)
    moved = [each for each in records if len(each.nodes) > 1]
    assert moved and all(each.nodes == ["a", "b"] for each in moved), "what was under way there goes on at the other"
    assert (sum(each.drafted for each in records) > 0) is (mode is not FleetMode.TARGET)
    assert all(not node.runs for node in fleet.verifiers.all.values())
    again, _ = run(setting, conversations(8, 0.05))
    assert [asdict(each) for each in again] == [asdict(each) for each in records], "the same seed, the same records"
    other, _ = run(replace(setting, seed=1), conversations(8, 0.05))
    assert [asdict(each) for each in other] != [asdict(each) for each in records]


def test_a_fleet_of_one_is_a_drafter_and_a_verifier_in_a_world() -> None:
    """The router and the connection add nothing: the times are those of the same pair without them."""
    device = replace(DEVICE, network=Network(0.03), mode=FleetMode.REMOTE)
    ((record,), fleet) = run(FleetSetting({"a": KIND}, (device,)), conversations(1, 0.0, turns=1, output=40))
    node, cost = fleet.verifiers.all["a"], device.cost
    assert cost is not None
    text = Text([*range(record.prompt_tokens)], lambda what: fleet.stream(f"c0/0/{what}"))
    world = World(
        RuleTarget(slots=32, context_length=KIND.context),
        lambda plan: KIND.cost.seconds([(len(entry.tokens), entry.start) for entry in plan.batch]),
        pass_times=node.pass_times,
    )
    pair = EngineDrafter(
        world,
        text.tokens(0, text.prompt_len),
        Agreeing(Choices(text, device.agreement)),
        DraftEngine(world, cost),
        0,
        lambda committed: None,
        max_tokens=record.output_tokens,
        network=device.network,
        pass_times=node.pass_times,
    )
    pair.start()
    world.run(done=lambda: pair.finished)
    alone = [pair.course.opened, *pair.course.times]
    assert [each - record.sent for each in record.times] == pytest.approx(alone)
    assert (record.drafted, record.accepted) == (pair.course.judged, pair.course.accepted)


def test_texts_wait_while_no_verifier_is_there() -> None:
    setting = replace(TWO, failures=(Failure("a", 0.3, 5.0), Failure("b", 0.4, 6.0)))
    records, _ = run(setting, conversations(4, 0.05))
    check(records, 4)
    assert all(each.end > 5.0 for each in records)


def test_texts_without_a_verifier_fail_when_the_patience_of_their_devices_is_over() -> None:
    setting = replace(TWO, failures=(Failure("a", 0.3), Failure("b", 0.4, 0.4 + PATIENCE + 1.0)))
    records, fleet = run(setting, conversations(4, 0.05))
    assert [(each.turn, each.status) for each in records] == [(0, Status.FAILED)] * 4
    assert any(each.times for each in records), "some had begun"
    assert not any(len(each.times) == each.output_tokens for each in records)
    assert fleet.loop.now == pytest.approx(0.4 + PATIENCE, abs=0.1) and fleet.users.finished


def test_a_text_that_an_overloaded_verifier_does_not_take_fails() -> None:
    kind = replace(KIND, cost=LinearCost(25_000.0, 0.0, 0.0), slots=1, max_queue=1)
    records, _ = run(FleetSetting({"a": kind}, (DEVICE,)), conversations(4, 0.05, turns=1, output=9))
    assert [each.status for each in records] == [Status.WHOLE] + [Status.FAILED] * 3
    assert not any(each.times for each in records[1:])


def test_the_second_turn_holds_the_first_one_and_goes_where_that_was() -> None:
    setting = replace(TWO, policy=KNOWN["prefix_aware"], look_every=0.0)
    records, _ = run(setting, conversations(6, 1.5))
    check(records, 6)
    for first, second in zip(records[::2], records[1::2], strict=True):
        assert second.prompt_tokens == first.prompt_tokens + first.output_tokens + 20
        assert second.nodes == first.nodes


@pytest.mark.parametrize("name", KNOWN)
def test_each_policy_serves_all(name: str) -> None:
    records, _ = run(replace(TWO, policy=KNOWN[name], deadlines=lambda tenant: 0.2), conversations(6, 0.05))
    check(records, 6)


def test_two_choices_are_better_than_random_at_high_load() -> None:
    """Ten verifiers with few slots, at some nine tenths of what they can do."""

    def worst(policy: Callable[[], Policy]) -> float:
        kind = replace(KIND, slots=2)
        names = [str(number) for number in range(10)]
        setting = FleetSetting(dict.fromkeys(names, kind), (DEVICE,), policy, look_every=0.0)
        records, _ = run(setting, conversations(300, 0.045, turns=1))
        check(records, 300, turns=1)
        waits = sorted(each.ttft for each in records)
        return waits[int(0.95 * len(waits))]

    assert worst(Jsq2) < 0.8 * worst(Random)


def test_autoscaling_starts_verifiers_under_load_and_stops_them_after_it() -> None:
    kind = replace(KIND, slots=2)
    scaling = Autoscaling(kind, above=0.1, below=0.03, start_delay=1.0, most=4, every=0.5)

    def loaded() -> Iterator[Conversation]:
        yield from conversations(40, 0.05, turns=1)
        yield Conversation("c40", 30.0, (Turn(20, 24),))

    records, fleet = run(FleetSetting({"a": kind}, (DEVICE,), autoscaling=(scaling,)), loaded())
    check(records, 41, turns=1)
    used = {name for each in records for name in each.nodes}
    assert used >= {"a", "verifier-started-1"} and len(used) > 2
    assert len(fleet.verifiers.stopped) >= 2 and len(fleet.verifiers.all) < 4
    first = min(each.first for each in records if "verifier-started-1" in each.nodes)
    assert first > 1.5, "it is decided after half a second, and the start takes one"
    alone, _ = run(FleetSetting({"a": kind}, (DEVICE,)), loaded())
    assert sum(each.ttft for each in alone) > 1.2 * sum(each.ttft for each in records)


def test_breakdowns_are_drawn_for_each_verifier_and_only_one_kind_has_them() -> None:
    fragile = replace(KIND, breakdowns=(Breakdowns(lambda rng: rng.expovariate(2.0), lambda rng: 0.4),), name="fragile")
    setting = FleetSetting({"a": fragile, "b": fragile, "c": KIND}, (DEVICE,), sample_every=0.1)
    found = Kept()
    Fleet(setting, conversations(20, 0.2), found).run()
    assert len(found.records) == 40
    down = {node: [each.at for each in found.samples if each.node == node and not each.up] for node in "abc"}
    assert down["a"] and down["b"] and down["a"] != down["b"] and not down["c"]
    assert any(len(each.nodes) > 1 for each in found.records)


def test_kinds_scale_by_themselves() -> None:
    small, big = replace(KIND, slots=1, name="small"), replace(KIND, name="big")
    scaling = tuple(Autoscaling(kind, 0.1, 0.03, 0.5, most=3, every=0.5) for kind in (small, big))
    _, fleet = run(
        FleetSetting({"a": small, "b": big}, (DEVICE,), KNOWN["random"], autoscaling=scaling),
        conversations(20, 0.05, turns=1),
    )
    names = {*fleet.verifiers.all, *(each.name for each in fleet.verifiers.stopped)}
    assert names == {"a", "b", "small-started-1", "small-started-2"}


def test_a_fleet_that_cannot_run_is_refused() -> None:
    bare = replace(KIND, draft_cost=None)
    for setting, said in (
        (FleetSetting({"a": bare}, (replace(DEVICE, mode=FleetMode.FUSED),)), "draft_cost"),
        (FleetSetting({"a": KIND}, (DeviceKind(),)), "a device is in mode remote: give it the cost"),
        (replace(TWO, failures=(Failure("c", 1.0),)), "'c': there are a, b"),
    ):
        with pytest.raises(ValueError, match=said):
            Fleet(setting, conversations(1, 1.0), Kept())
