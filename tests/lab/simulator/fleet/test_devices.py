"""Users and their devices: who waits for a free device, what becomes of a text whose device leaves, closed loops."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.balancing import KNOWN
from lab.simulator.configuration.devices import ComesAndGoes
from lab.simulator.fleet.conversation import Conversation, Turn
from lab.simulator.fleet.device_pool import DevicePool, FleetDevice
from lab.simulator.fleet.record import Record, Status
from lab.simulator.fleet.settings import DeviceKind, FleetMode, FleetSetting
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import EventLoop
from tests.lab.simulator.fleet.fleets import DEVICE, KIND, TWO, Kept, conversations, run

MODES = [FleetMode.TARGET, FleetMode.FUSED, FleetMode.LOCKSTEP, FleetMode.REMOTE]


class Periods:
    """A device that is there in these periods."""

    def __init__(self, *periods: tuple[float, float]) -> None:
        self._periods = periods

    def __call__(self, rng: random.Random) -> Iterator[tuple[float, float]]:
        return iter(self._periods)


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


def test_a_device_is_its_users_between_two_turns() -> None:
    records, _ = run(replace(TWO, devices=(replace(DEVICE, count=1),)), conversations(2, 0.05))
    assert [each.conversation for each in sorted(records, key=lambda each: each.end)] == ["c0", "c0", "c1", "c1"]
    assert records[1].waited == records[3].waited == 0.0


def test_devices_are_taken_by_their_counts() -> None:
    kinds = replace(DEVICE, count=30, name="many"), replace(DEVICE, count=10, name="few")
    records, _ = run(replace(TWO, devices=kinds), conversations(400, 2.0, turns=1, output=1))
    assert sum(each.device == "many" for each in records) / 400 == pytest.approx(0.75, abs=0.06)


@pytest.mark.parametrize("mode", MODES)
def test_a_text_whose_device_leaves_is_aborted_and_its_conversation_is_over(mode: FleetMode) -> None:
    """Others wait for the device, which is theirs when it is back."""
    device = replace(DEVICE, mode=mode, count=1, availability=Periods((0.0, 0.5), (5.0, 60.0)))
    setting = FleetSetting({"a": replace(KIND, slots=1)}, (device,))
    records, fleet = run(setting, conversations(3, 0.05))
    assert [(each.conversation, each.turn, each.status) for each in records] == [
        ("c0", 0, Status.ABORTED),
        *((f"c{number}", turn, Status.WHOLE) for number in (1, 2) for turn in (0, 1)),
    ]
    assert 0 < len(records[0].times) < records[0].output_tokens and records[0].times[-1] <= 0.5
    assert records[1].waited == pytest.approx(5.0 - records[1].sent)
    assert not any(node.runs for node in fleet.verifiers.all.values())


def test_the_server_stops_to_write_for_a_device_that_left_and_keeps_a_session_that_waits_for_drafts() -> None:
    for mode, held in ((FleetMode.TARGET, 0), (FleetMode.REMOTE, 1)):
        device = replace(DEVICE, mode=mode, count=1, availability=Periods((0.0, 0.5)))
        kind = replace(KIND, session_ttl=60.0)
        found = Kept()
        setting = FleetSetting({"a": kind}, (device,), sample_every=10.0)
        _, fleet = run(setting, conversations(1, 0.0, output=400), found)
        fleet.loop.run(80.0)
        assert [each.status for each in found.records] == [Status.ABORTED]
        assert [each.held for each in found.samples] == [held] * 6 + [0, 0], "until it is idle for too long"
        assert found.samples[0].passes == found.samples[-1].passes, "it decodes on for two seconds"


def test_a_turn_is_asked_when_the_device_is_back() -> None:
    coming = Conversation("c0", 0.0, (Turn(20, 4), Turn(20, 4, 3.0)))
    device = replace(DEVICE, count=1, availability=Periods((0.0, 2.0), (9.0, 60.0)))
    records, _ = run(replace(TWO, devices=(device,)), iter([coming]))
    assert [(each.turn, each.status, each.waited) for each in records] == [(0, "whole", 0.0), (1, "whole", 0.0)]
    assert records[1].sent == 9.0


@pytest.mark.parametrize("mode", MODES)
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


def test_a_closed_loop_of_a_recorded_workload_ends_with_it() -> None:
    records, fleet = run(replace(TWO, users=2), islice(conversations(5, 0.0), 5))
    assert len(records) == 10 and fleet.users.finished


@pytest.mark.parametrize("mode", MODES)
def test_verifiers_of_different_kinds_stand_at_different_distances(mode: FleetMode) -> None:
    setting = FleetSetting(
        {"here": replace(KIND, name="near"), "there": replace(KIND, name="far")},
        (replace(DEVICE, network=Network(0.002), mode=mode, links={"far": Network(0.4)}),),
        KNOWN["round_robin"],
    )
    records, _ = run(setting, conversations(4, 2.0, turns=1))
    waits = {each.nodes[0]: each.ttft for each in records}
    assert waits["there"] - waits["here"] == pytest.approx(0.4 - 0.002, abs=0.02)


class Someone:
    """A user of the pool."""

    def __init__(self, told: list[tuple[str, "Someone"]]) -> None:
        self._told = told
        self.device: FleetDevice | None = None

    def begin(self, device: FleetDevice) -> None:
        assert device.there and device.user is self
        self.device = device
        self._told.append(("begin", self))

    def left(self) -> None:
        assert self.device is not None and not self.device.there
        self._told.append(("left", self))

    def back(self) -> None:
        self._told.append(("back", self))


@settings(max_examples=60)
@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.floats(0.0, 3.0)), max_size=40), st.integers(0, 99))
def test_devices_have_one_user_each_in_the_order_of_asking(
    count: int, steps: list[tuple[bool, float]], seed: int
) -> None:
    loop, told = EventLoop(), list[tuple[str, Someone]]()
    on, off = ({"distribution": "exponential", "mean": mean} for mean in (2.0, 1.0))
    comes_and_goes = ComesAndGoes.model_validate({"on_s": on, "off_s": off, "there_at_first": 0.5})
    kind = DeviceKind(count=count, availability=comes_and_goes.periods)
    pool = DevicePool(loop, (kind,), lambda name: random.Random(f"{seed}/{name}"))
    asked, gone = list[Someone](), 0
    for comes, seconds in steps:
        loop.run(loop.now + seconds)
        begun = [user for what, user in told if what == "begin"]
        if comes or gone == len(begun):
            asked.append(Someone(told))
            pool.take(asked[-1], random.Random(seed))
        else:
            device, gone = begun[gone].device, gone + 1
            assert device is not None
            pool.release(device)
        begun = [user for what, user in told if what == "begin"]
        assert begun == asked[: len(begun)], "first come, first served"
        held = [user.device for user in begun[gone:]]
        assert len({id(each) for each in held}) == len(held) <= count
