"""Fleets in virtual time: every request is answered once and rightly, the same seed gives the same records, and what is
known of modes, devices, policies, failures and autoscaling is seen.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import count

import pytest

from drafter_client.http.retries import PATIENCE
from gateway.balancing import KNOWN
from lab.simulator.costs.cost import LinearCost
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import Conversation, Record, Status, Turn
from lab.simulator.fleet.settings import Autoscaling, Breakdowns, FleetMode, FleetSetting
from lab.simulator.fleet.text import OTHERS, Agreeing, Choices, RuleTarget, Text
from lab.simulator.virtual.agreement import Judged, Profile, constant
from lab.simulator.virtual.draft_engine import DraftEngine, EngineDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import World
from tests.lab.simulator.fleets import DEVICE, KIND, TWO, Kept, conversations, lost, run


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
    setting = replace(TWO, devices=(replace(DEVICE, mode=mode),), verifiers={"a": lost(0.6, 0.9), "b": KIND})
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


def test_texts_without_a_verifier_fail_when_the_patience_of_their_devices_is_over() -> None:
    setting = FleetSetting({"a": lost(0.3, 9e9), "b": lost(0.4, PATIENCE + 1.0)}, (DEVICE,))
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


def at_once(records: Sequence[Record]) -> int:
    """Most requests at devices at one moment."""
    begun = [(round(each.sent + each.waited, 9), 1) for each in records]
    changes = sorted([*begun, *((round(each.end, 9), -1) for each in records)])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def test_a_conversation_waits_for_a_free_device_first_come_first_served() -> None:
    records, _ = run(replace(TWO, devices=(replace(DEVICE, count=2),)), conversations(6, 0.05, turns=1))
    free, _ = run(TWO, conversations(6, 0.05, turns=1))
    assert at_once(free) == 6 and at_once(records) == 2
    assert [each.sent for each in records] == [each.sent for each in free], "users ask when they would anyway"
    assert records[0].waited == records[1].waited == 0.0
    begun = [each.sent + each.waited for each in records]
    assert begun == sorted(begun) and all(each.waited > 0 for each in records[2:])
    assert all(each.ttft > each.waited for each in records), "the wait is in the time to the first token"


def test_devices_are_taken_by_their_counts() -> None:
    kinds = replace(DEVICE, count=30, name="many"), replace(DEVICE, count=10, name="few")
    records, _ = run(replace(TWO, devices=kinds), conversations(400, 2.0, turns=1, output=1))
    assert sum(each.device == "many" for each in records) / 400 == pytest.approx(0.75, abs=0.06)


@pytest.mark.parametrize("mode", FleetMode)
def test_what_is_under_way_at_the_end_is_unfinished(mode: FleetMode) -> None:
    found = Kept()
    _, fleet = run(replace(TWO, devices=(replace(DEVICE, mode=mode),)), conversations(3, 0.05), found, until=0.5)
    fleet.interrupt()
    assert [each.status for each in found.records] == [Status.UNFINISHED] * 3
    assert found.records[0].times and max(found.records[0].times) <= 0.5


def test_a_closed_loop_has_its_users_at_once_and_they_pause() -> None:
    def endless() -> Iterator[Conversation]:
        for number in count():
            yield Conversation(f"c{number}", 0.0, (Turn(20, 8, 0.3), Turn(20, 8, 0.1)))

    found = Kept()
    steady = replace(DEVICE, network=Network(0.02))
    run(replace(TWO, users=3, devices=(steady,)), endless(), found, until=20.0)
    whole = found.records
    assert len(whole) > 30 and at_once(whole) == 3
    begun = sorted(each.sent for each in whole if not each.turn)
    ended = sorted(each.end for each in whole if each.turn)
    assert begun[:3] == [0.3] * 3
    for begin, end in zip(begun[3:], ended, strict=False):
        assert begin == pytest.approx(end + 0.02 + 0.3), "one begins as the session of one is released"


@pytest.mark.parametrize("mode", FleetMode)
def test_verifiers_of_different_kinds_stand_at_different_distances(mode: FleetMode) -> None:
    setting = FleetSetting(
        {"here": replace(KIND, name="near"), "there": replace(KIND, name="far")},
        (replace(DEVICE, network=Network(0.002), mode=mode, links={"far": Network(0.4)}),),
        KNOWN["round_robin"],
    )
    records, _ = run(setting, conversations(4, 2.0, turns=1))
    waits = {each.nodes[0]: each.ttft for each in records}
    assert waits["there"] - waits["here"] == pytest.approx(0.4 - 0.002, abs=0.02)


def test_each_choice_is_right_as_often_as_the_draft_model_says() -> None:
    text = Text([1, 2], random.Random)
    choices, right = Choices(text, constant(0.6)), [0] * (1 + len(OTHERS))
    for at in range(2, 6002):
        proposal = choices.proposal(at, 0, len(OTHERS))
        (truth,) = text.tokens(at, at + 1)
        assert proposal.parts == OTHERS and len({*proposal.tokens}) == 1 + len(OTHERS)
        if truth in proposal.tokens:
            right[proposal.tokens.index(truth)] += 1
    assert [each / 6000 for each in right] == pytest.approx([0.6, *(0.4 * each for each in OTHERS)], abs=0.015)


def test_kinds_of_devices_and_of_texts_have_their_own_laws() -> None:
    profile = Profile.of([Judged("code", 0, True), *[Judged("prose", 0, number == 0) for number in range(10)]])
    devices = (
        replace(DEVICE, mode=FleetMode.LOCKSTEP, agreement=profile, count=20, name="profiled"),
        replace(DEVICE, mode=FleetMode.LOCKSTEP, agreement=constant(0.0), count=20, name="poor"),
    )

    def coming() -> Iterator[Conversation]:
        for number in range(24):
            tenant = ("code", "prose", "chat")[number % 3]
            yield Conversation(f"c{number}", number * 0.3, (Turn(20, 60),), tenant)

    records, _ = run(FleetSetting({"a": KIND}, devices), coming())
    assert {each.accepted for each in records if each.device == "poor"} == {0}
    profiled = [each for each in records if each.device == "profiled"]
    rates = {
        tenant: sum(each.accepted for each in profiled if each.tenant == tenant)
        / sum(each.drafted for each in profiled if each.tenant == tenant)
        for tenant in ("code", "prose", "chat")
    }
    assert rates["code"] == 1.0 and rates["prose"] < rates["chat"] < 1.0


def test_a_better_model_is_right_wherever_a_worse_one_is() -> None:
    text = Text([1, 2], lambda what: random.Random(what))
    good, bad = (Choices(text, constant(chance)) for chance in (0.8, 0.3))
    right = [
        tuple(each.proposal(at, 0, 0).token == text.tokens(at, at + 1)[0] for each in (good, bad))
        for at in range(2, 300)
    ]
    assert set(right) == {(True, True), (True, False), (False, False)}
