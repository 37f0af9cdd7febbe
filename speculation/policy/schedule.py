"""How the two machines may work together, and how they do."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """What the drafter may use. All off is lockstep: draft, send, wait."""

    overlap: bool = True  # draft on while an answer is under way
    in_flight: int = 6  # guesses under way at once
    corrections: bool = True  # prepare continuations of likely corrections
    self_continue: bool = True  # the verifier goes on by itself while it waits for guesses


LOCKSTEP = Mechanisms(overlap=False, in_flight=1, corrections=False, self_continue=False)


class Schedule(Enum):
    """What pays at present."""

    LOCKSTEP = "lockstep"  # draft, send, wait
    OVERLAPPED = "overlapped"  # drafts are made while the verifier is at work
    SELF_CONTINUED = "self-continued"  # no guess pays: the verifier goes on by itself
