"""Timelines of requests: what they note is what happened, in all modes, and nothing else changes."""

from dataclasses import replace

import pytest

from lab.simulator.fleet.record import Record
from lab.simulator.fleet.settings import FleetSetting, Mode, Prefill
from lab.simulator.virtual.timeline import Lane, What
from tests.lab.simulator.fleet.fleets import DEVICE, KIND, TWO, conversations, run

DRAFTED = {Mode.FUSED, Mode.LOCKSTEP, Mode.REMOTE, Mode.AUTO}


def written(mode: Mode, most: int, setting: FleetSetting = TWO) -> list[Record]:
    fleet = replace(setting, devices=(replace(DEVICE, mode=mode),), timelines=most)
    return run(fleet, conversations(4, 0.1))[0]


@pytest.mark.parametrize("mode", Mode)
def test_spans_account_for_all_tokens_and_drafts(mode: Mode) -> None:
    for record in written(mode, 64):
        assert record.timeline is not None
        spans = record.timeline.spans
        assert sum(each.committed for each in spans) == len(record.times)
        assert sum(each.accepted for each in spans) == record.accepted
        assert sum(each.proposed for each in spans) >= record.drafted
        assert all(record.sent <= each.begin < each.end <= record.end for each in spans)
        lanes = {each.what.lane for each in spans}
        assert lanes == ({*Lane} if mode in DRAFTED else {Lane.WIRE, Lane.VERIFIER})
        assert all((each.node == record.nodes[0]) is (each.what.lane is Lane.VERIFIER) for each in spans)


def test_what_is_noted_changes_nothing() -> None:
    with_some, without = (written(Mode.REMOTE, most) for most in (2, 0))
    assert [each.times for each in with_some] == [each.times for each in without]
    assert 0 < sum(each.timeline is not None for each in with_some) < len(with_some), "at most two at once"


def test_in_lockstep_draft_message_pass_and_message_follow_each_other() -> None:
    timeline = written(Mode.LOCKSTEP, 64)[0].timeline
    assert timeline is not None
    course = [each.what for each in timeline.spans if each.what is not What.QUEUE]
    assert course[:3] == [What.UP, What.PREFILL, What.DOWN]
    rounds = course[3:]
    assert rounds == [What.DRAFT, What.UP, What.PASS, What.DOWN] * (len(rounds) // 4)
    fed = [each for each in timeline.spans if each.what is What.PASS]
    assert all(each.committed == each.accepted + 1 for each in fed[:-1])


def test_a_prompt_that_is_read_elsewhere_has_its_pass_there_and_its_way() -> None:
    kinds = {"reader": replace(KIND, reads_only=True), "a": KIND}
    setting = replace(TWO, verifiers=kinds, prefill=Prefill(1e5, 1e9))
    timeline = written(Mode.TARGET, 64, setting)[0].timeline
    assert timeline is not None
    first = [each.what for each in timeline.spans[:4]]
    assert first[:3] == [What.UP, What.PREFILL, What.MOVE] and timeline.spans[1].node == "reader"
