"""How texts are written in a fleet: trees, lengths of drafts, and what a server drafts with."""

from dataclasses import replace
from typing import Any

import pytest

from lab.simulator.costs.cost import LinearCost, PassCost
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.nodes import FleetNode
from lab.simulator.fleet.record import Conversation, Record, Turn
from lab.simulator.fleet.settings import DeviceKind, FleetMode, FleetSetting, VerifierKind
from lab.simulator.virtual.agreement import constant
from lab.simulator.virtual.network import Network
from tests.lab.simulator.fleets import Kept
from verifier_server.engine.requests import Request
from verifier_server.engine.scheduler import Scheduler

TARGET, DRAFT = LinearCost(25.0, 0.5, 0.2), LinearCost(4.0, 0.2, 0.1)


def run(
    device: DeviceKind, texts: int = 1, output: int = 60, agreement: float = 0.8, target: PassCost = TARGET, **kind: Any
) -> tuple[list[Record], FleetNode]:
    """The records of so many texts that are asked for at once of one verifier, and that verifier.

    `target`: the cost of its passes.
    """
    kept = Kept()
    conversations = (Conversation(f"c{number}", 0.0, (Turn(20, output),)) for number in range(texts))
    law = constant(agreement)
    verifier = VerifierKind(target, draft_cost=DRAFT, draft_agreement=law, **kind)
    setting = FleetSetting({"a": verifier}, (replace(device, agreement=law),))
    fleet = Fleet(setting, conversations, kept)
    fleet.run()
    assert all(len(each.times) == output for each in kept.records) and len(kept.records) == texts
    return kept.records, fleet.verifiers.all["a"]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """All that verifiers are sent."""
    found, submit = list[Request](), Scheduler.submit

    def noted(self: Scheduler, request: Request, now: float) -> None:
        found.append(request)
        submit(self, request, now)

    monkeypatch.setattr(Scheduler, "submit", noted)
    return found


@pytest.mark.parametrize("mode", [FleetMode.LOCKSTEP, FleetMode.REMOTE])
def test_trees_are_faster_where_the_models_often_disagree(mode: FleetMode, requests: list[Request]) -> None:
    """They are those of the real controller: behind a token stands its likeliest choice, then others by what they are
    worth."""
    chain, tree = (
        run(DeviceKind(Network(0.06), mode, DRAFT, trees=trees), 1, 200, 0.6)[0][0].end for trees in (False, True)
    )
    assert tree < 0.95 * chain
    trees = [each.draft for each in requests if not each.draft.is_chain]
    assert len(trees) > 10
    for each in trees:
        siblings: dict[int, list[float]] = {}
        for at, token in enumerate(each):
            siblings.setdefault(at - token.parent, []).append(token.confidence)
        assert all(found[0] == max(found) for found in siblings.values())


def test_a_server_drafts_for_as_many_texts_as_its_draft_model_has_slots() -> None:
    """The others wait for the first token of theirs."""
    device = DeviceKind(Network(0.01), FleetMode.FUSED)
    records, _ = run(device, texts=6, slots=6, draft_slots=4)
    waited = sorted(each.ttft for each in records)
    assert waited[3] < 0.3 and waited[4] > min(each.end for each in records)


def test_draft_passes_slow_those_of_a_target_on_the_same_device() -> None:
    ends = [
        max(each.end for each in run(DeviceKind(mode=FleetMode.FUSED), 4, draft_shares_device=shares)[0])
        for shares in (False, True)
    ]
    assert ends[1] > 1.03 * ends[0]


@pytest.mark.parametrize("mode", FleetMode)
def test_a_request_that_an_overloaded_verifier_sends_away_comes_again(mode: FleetMode) -> None:
    """After the second that it is told to wait."""
    device = DeviceKind(Network(0.02, 0.001), mode, DRAFT)
    records, _ = run(device, texts=6, slots=2, max_queue=2, draft_slots=6)
    assert max(each.ttft for each in records) > 1.0
    assert run(device, texts=6, slots=2, max_queue=2, draft_slots=6)[0] == records


@pytest.mark.parametrize(("mode", "says"), [(FleetMode.LOCKSTEP, False), (FleetMode.REMOTE, True)])
def test_a_drafter_says_when_its_next_draft_comes_as_the_real_one_does(
    mode: FleetMode, says: bool, requests: list[Request]
) -> None:
    run(DeviceKind(Network(0.02), mode, DRAFT))
    assert len(requests) > 4
    assert all((each.policy.next_in is not None) == says for each in requests)
