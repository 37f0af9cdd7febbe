"""Where a committed token came from."""

from enum import Enum


class Origin(Enum):
    """Every token of a text has one of these, so that they add up to it."""

    ACCEPTED = "accepted"  # drafted here, and the target agreed
    CORRECTION = "correction"  # the target's own, in place of a draft that fell
    FREE = "free"  # the target's own, where no draft was in the way
    OWN = "own"  # the verifier's, which went on by itself before a guess came
