"""How often drafts of a fleet's texts agree: by position in the draft, by kind of drafters, and by kind of text."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.simulator.fleet.record import Conversation, Turn
from lab.simulator.fleet.settings import FleetMode, FleetSetting
from lab.simulator.fleet.text import Agreeing, Choices, RuleTarget, Text
from lab.simulator.virtual.agreement import Agreement, ByPosition, Judged, Profile, constant
from lab.simulator.virtual.draft_engine import DraftEngine, EngineDrafter
from lab.simulator.virtual.world import World
from specpair.drafters.run.events import Committed
from specpair.speculation.policy.schedule import LOCKSTEP
from tests.lab.simulator.fleets import DEVICE, KIND, run

COST = KIND.cost


def shares(law: Agreement, length: int = 4, tokens: int = 6000) -> list[float]:
    """Of a long text in lockstep: of the draft tokens that all before them agreed, the share that agreed."""
    text = Text([1, 2], lambda what: random.Random(f"3/{what}"))
    world = World(RuleTarget(slots=1, context_length=10_000), lambda plan: 0.02)
    judged, accepted = [0] * length, [0] * length

    def take(committed: Committed) -> None:
        for each in committed.rounds:
            for position in range(min(each.judged, each.accepted + 1)):
                judged[position] += 1
                accepted[position] += position < each.accepted

    pair = EngineDrafter(
        world,
        text.tokens(0, 2),
        Agreeing(Choices(text, law)),
        DraftEngine(world, COST),
        0,
        take,
        max_tokens=tokens,
        length=length,
        mechanisms=LOCKSTEP,
    )
    pair.start()
    world.run(done=lambda: pair.finished)
    return [each / of for each, of in zip(accepted, judged, strict=True)]


def test_chances_are_by_position_in_the_draft() -> None:
    assert shares(ByPosition((0.9, 0.5, 0.8))) == pytest.approx([0.9, 0.5, 0.8, 0.8], abs=0.04)


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
