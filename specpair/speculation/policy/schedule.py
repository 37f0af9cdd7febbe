"""The mechanisms that drafter and verifier may use together, and the schedule that results."""

from dataclasses import dataclass, replace
from enum import Enum


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """What the drafter may use. With all mechanisms off (`LOCKSTEP`), it drafts, sends and waits."""

    overlap: bool = True  # draft while a response is awaited
    in_flight: int = 6  # most verify requests in flight at once
    after_recovered: bool = True  # prepare drafts behind likely recovered tokens
    self_continue: bool = True  # the verifier decodes by itself while it waits for drafts
    same_cores: bool = False  # a draft step takes time from the verifier, whether that waits or not
    trees: bool = False  # send runner-ups, too: a draft is a tree


LOCKSTEP = Mechanisms(overlap=False, in_flight=1, after_recovered=False, self_continue=False)
# Where both ends compute on the same cores: drafting beside a pass would slow both, and in part be thrown away.
IN_TURNS = Mechanisms(overlap=False, in_flight=1, after_recovered=False, same_cores=True)


def mechanisms_of(*, shares_cores: bool, self_continue: bool, may_change_mode: bool) -> Mechanisms:
    """What drafter and verifier use in mode `remote`.

    `shares_cores`: both compute on the same cores.
    `self_continue`: the verifier offers it.
    `may_change_mode`: where drafts do not pay, mode `auto` takes mode `target`. So on shared cores it needs no
        self-continuation, which would run beside a draft step and make that take twice as long.
    """
    if not shares_cores:
        return Mechanisms(self_continue=self_continue)
    return replace(IN_TURNS, self_continue=self_continue and not may_change_mode)


class Schedule(Enum):
    """How drafter and verifier share the time."""

    LOCKSTEP = "lockstep"  # draft, send, wait
    OVERLAPPED = "overlapped"  # drafting goes on while the verifier works
    SELF_CONTINUED = "self-continued"  # no draft pays: the verifier decodes by itself
