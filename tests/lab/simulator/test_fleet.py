"""Fleets in virtual time: every request is answered once and rightly, the same seed gives the same records, and what is
known of modes, devices and policies is seen.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from gateway.balancing import KNOWN
from lab.simulator.fleet.record import Conversation, Record, Status, Turn
from lab.simulator.fleet.text import OTHERS, Choices, Text
from lab.simulator.virtual.agreement import stated
from tests.lab.simulator.fleets import DRAFT, MODES, TWO, configured, conversations, link, run
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.scheduler import Scheduler


def check(records: list[Record], conversations: int, turns: int = 2) -> None:
    """Every request was answered once, to its end, and its times are in order."""
    expected = [(f"c{number}", turn) for number in range(conversations) for turn in range(turns)]
    assert [(each.conversation, each.turn) for each in records] == expected
    for each in records:
        assert len(each.times) == each.output_tokens
        assert each.times == sorted(each.times) and each.sent < each.first
        assert each.accepted <= each.drafted


@pytest.mark.parametrize("mode", MODES)
def test_every_request_is_answered_once_and_the_same_seed_gives_the_same_records(mode: str) -> None:
    setting = configured(mode, TWO)
    records, fleet = run(setting, conversations(8, 0.05))
    check(records, 8)
    assert {node for each in records for node in each.nodes} == {"a-1", "b-1"}
    assert (sum(each.drafted for each in records) > 0) is (mode != "target")
    assert all(not node.runs for node in fleet.nodes.values())
    again, _ = run(setting, conversations(8, 0.05))
    assert [asdict(each) for each in again] == [asdict(each) for each in records]
    other, _ = run(setting, conversations(8, 0.05), seed=1)
    assert [asdict(each) for each in other] != [asdict(each) for each in records]


def test_a_text_that_an_overloaded_verifier_does_not_take_fails() -> None:
    slow = {"name": "a", "cost": {"law": "linear", "decode_ms": 25_000}, "slots": 1, "max_queue": 1}
    records, _ = run(configured("target", [slow]), conversations(4, 0.05, turns=1, output=9))
    assert [each.status for each in records] == [Status.WHOLE] + [Status.FAILED] * 3
    assert not any(each.times for each in records[1:])


def test_the_second_turn_holds_the_first_one_and_goes_where_that_was() -> None:
    records, _ = run(configured("target", TWO, router="prefix_aware", look_every_ms=0), conversations(6, 1.5))
    check(records, 6)
    for first, second in zip(records[::2], records[1::2], strict=True):
        assert second.prompt_tokens == first.prompt_tokens + first.output_tokens + 20
        assert second.nodes == first.nodes


@pytest.mark.parametrize("name", KNOWN)
def test_each_policy_serves_all(name: str) -> None:
    records, _ = run(configured("target", TWO, router=name, slo={"tpot_ms": 200}), conversations(6, 0.05))
    check(records, 6)


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
    records, _ = run(configured("target", TWO, [{"name": "laptop", "count": 2}]), conversations(6, 0.05, turns=1))
    free, _ = run(configured("target", TWO), conversations(6, 0.05, turns=1))
    assert at_once(free) == 6 and at_once(records) == 2
    assert [each.sent for each in records] == [each.sent for each in free], "users ask when they would anyway"
    assert records[0].waited == records[1].waited == 0.0
    begun = [each.sent + each.waited for each in records]
    assert begun == sorted(begun) and all(each.waited > 0 for each in records[2:])
    assert all(each.ttft > each.waited for each in records), "the wait is in the time to the first token"


@pytest.mark.parametrize("mode", MODES)
def test_what_is_under_way_at_the_end_is_unfinished(mode: str) -> None:
    records, _ = run(configured(mode, TWO), conversations(3, 0.05), until=0.5)
    assert [each.status for each in records] == [Status.UNFINISHED] * 3
    assert records[0].times and max(records[0].times) <= 0.5


@pytest.mark.parametrize("mode", MODES)
def test_verifiers_of_different_kinds_stand_at_different_distances(mode: str) -> None:
    far = [link(2), link(400, verifiers="b")]
    records, _ = run(configured(mode, TWO, connections=far, router="round_robin"), conversations(4, 2.0, turns=1))
    waits = {each.nodes[0]: each.ttft for each in records}
    assert waits["b-1"] - waits["a-1"] == pytest.approx(0.4 - 0.002, abs=0.02)


def test_each_choice_is_right_as_often_as_the_draft_model_says() -> None:
    text = Text([1, 2], random.Random)
    choices, right = Choices(text, stated(0.6)), [0] * (1 + len(OTHERS))
    for at in range(2, 6002):
        proposal = choices.proposal(at, 0, len(OTHERS))
        (truth,) = text.tokens(at, at + 1)
        assert proposal.parts == OTHERS and len({*proposal.tokens}) == 1 + len(OTHERS)
        if truth in proposal.tokens:
            right[proposal.tokens.index(truth)] += 1
    assert [each / 6000 for each in right] == pytest.approx([0.6, *(0.4 * each for each in OTHERS)], abs=0.015)


# How texts are written.


def written(
    mode: str, texts: int = 1, output: int = 60, agreement: float = 0.8, rtt_ms: float = 10, **keys: Any
) -> list[Record]:
    """The records of so many texts that are asked for at once of one verifier. `keys`: `gamma`, and the verifier's."""
    cost, draft = DRAFT | {"decode_ms": 4, "per_token_ms": 0.2}, {"agreement": agreement, **keys.pop("draft", {})}
    gamma = keys.pop("gamma", "auto")
    verifier = {"name": "a", "draft": {"cost": cost, **draft}, **keys}
    laptop = {"name": "laptop", "cost": cost, "agreement": agreement}
    setting = configured(mode, [verifier], [laptop], connections=[link(rtt_ms)], gamma=gamma)
    records, _ = run(setting, (Conversation(f"c{number}", 0.0, (Turn(20, output),)) for number in range(texts)))
    assert all(len(each.times) == output for each in records) and len(records) == texts
    return records


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """All that verifiers are sent."""
    found, submit = list[Request](), Scheduler.submit

    def noted(self: Scheduler, request: Request, now: float) -> None:
        found.append(request)
        submit(self, request, now)

    monkeypatch.setattr(Scheduler, "submit", noted)
    return found


@pytest.mark.parametrize("mode", ["lockstep", "remote"])
def test_trees_are_faster_where_the_models_often_disagree(mode: str, requests: list[Request]) -> None:
    """They are those of the real controller: behind a token stands its likeliest choice, then others by what they are
    worth."""
    chain, tree = (written(mode, 1, 200, 0.6, 60, gamma=gamma)[0].end for gamma in ("auto", "tree"))
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
    records = written("fused", texts=6, slots=6, draft={"slots": 4})
    waited = sorted(each.ttft for each in records)
    assert waited[3] < 0.3 and waited[4] > min(each.end for each in records)


@pytest.mark.parametrize("mode", MODES)
def test_a_request_that_an_overloaded_verifier_sends_away_comes_again(mode: str) -> None:
    """After the second that it is told to wait."""
    records = written(mode, texts=6, slots=2, max_queue=2, draft={"slots": 6}, rtt_ms=20)
    assert max(each.ttft for each in records) > 1.0
