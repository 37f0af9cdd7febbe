"""Estimates learnt from earlier texts: the times of passes, and the acceptance of draft tokens.

A text begins with copies of what the latest texts left, so texts that are written at the same time do not disturb each
other. A short text needs this most: it would be over before its own draft tokens had shown how far to trust them. Texts
that one thread writes together also share what their draft tokens show.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import ClassVar, NamedTuple
from weakref import WeakValueDictionary

from specpair.plugins import class_at
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec

_KINDS = 16  # most kinds of texts that are remembered


class DraftingPolicy:
    """The classes whose objects decide what is drafted. A subclass replaces one of them (docs/research.md).

    Each text has an object of each. They are called from one thread at a time, and copied from text to text.
    """

    draft_length: ClassVar[type[DraftLength]] = DraftLength  # how many draft tokens a request has
    latencies: ClassVar[type[LatencyModel]] = LatencyModel  # what a draft step, a verifier pass and a round trip take
    acceptance: ClassVar[type[AcceptanceModel]] = AcceptanceModel  # the chance that a draft token is accepted


def policy_at(name: str) -> type[DraftingPolicy]:
    """The policy of the user's own at `module:Class`. Raises ValueError, which says what is wrong."""
    return class_at(name, DraftingPolicy)


class Estimates(NamedTuple):
    """The estimates with which a text begins, and which it updates."""

    latencies: LatencyModel
    acceptance: AcceptanceModel


class Experience:
    """The estimates of the texts of one drafter and one verifier. Thread-safe."""

    def __init__(self, policy: type[DraftingPolicy] = DraftingPolicy) -> None:
        self.policy = policy
        self._lock = threading.Lock()
        self._latencies: LatencyModel | None = None
        # By strategy, threshold and sampling, the latest last: how draft tokens fare differs between these.
        self._acceptance: OrderedDict[tuple[Strategy, float | None, Sampling], AcceptanceModel] = OrderedDict()
        self._together = WeakValueDictionary[tuple[Strategy, float | None, Sampling], AcceptanceModel]()

    @contextmanager
    def text(self, spec: TextSpec, pass_times: Sequence[float] = (), *, together: bool = False) -> Iterator[Estimates]:
        """Yield the estimates that a text begins with; keep them for the next one when the block is left.

        `pass_times`: as for `LatencyModel`, for the first text.
        `together`: its acceptance model is that of the other such texts which are being written.
        """
        kind = spec.strategy, spec.threshold, replace(spec.sampling, seed=0)
        with self._lock:
            times = self._latencies
            latencies = self.policy.latencies(pass_times) if times is None else times.for_another_text()
            known = self._acceptance.get(kind)
            acceptance = self._together.get(kind) if together else None
            if acceptance is None:
                acceptance = self.policy.acceptance() if known is None else known.for_another_text()
            if together:
                self._together[kind] = acceptance
        try:
            yield Estimates(latencies, acceptance)
        finally:
            with self._lock:
                self._latencies = deepcopy(latencies)
                self._acceptance[kind] = deepcopy(acceptance)
                self._acceptance.move_to_end(kind)
                if len(self._acceptance) > _KINDS:
                    self._acceptance.popitem(last=False)
