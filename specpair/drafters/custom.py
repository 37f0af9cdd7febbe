"""Drafters that may fail: custom drafters, plug-ins, and a draft model whose engine fails.

An error of the first two names the drafter or its distribution, and not the code that uses it. After a failure of the
third, the target continues the text alone, and the failure is recorded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from specpair.drafters.base import BadDrafter, Drafter, DrafterError, Expansion, read_between_steps, read_prompt
from specpair.engines.errors import first_line
from specpair.engines.vocabulary import Vocabulary
from specpair.plugins import DRAFTERS, BadPlugin, Plugin, find
from specpair.protocol.errors import SpecPairError
from specpair.speculation.drafting.composed_context import ContextRead
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.sampling.sampling import Sampling


class CheckedDrafter:
    """Checks the results of `drafter`. For bad results, raises BadDrafter, which names the drafter and the fault."""

    def __init__(self, drafter: Drafter, name: str, ids: int) -> None:
        """`ids`: the size of the target's vocabulary. Raises BadDrafter if `drafter` lacks a part of the contract."""
        self._drafter, self._name, self._ids = drafter, name, ids
        width = getattr(drafter, "width", None)
        if type(width) is not int or width < 1 or not callable(getattr(drafter, "expand", None)):
            raise self._wrong(f"is no drafter: it needs a method expand, and a width of at least 1, not {width!r}")
        self.width = width

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        """The drafter's expansion. Raises BadDrafter if the expansion breaks the contract (`base`)."""
        result: Any = self._drafter.expand(text, tails, runners_up)
        proposals, read = result if isinstance(result, tuple) and len(result) == 2 else (None, None)
        if not isinstance(proposals, Sequence) or len(proposals) != len(tails):
            raise self._wrong(
                f"must return an Expansion with a proposal for each of {len(tails)} tails, not {result!r}"
            )
        if type(read) is not int or read < 0:
            raise self._wrong(f"must say how many tokens it read, not {read!r}")
        return Expansion([self._checked(each) for each in proposals], read)

    def _checked(self, proposal: Any) -> Proposal:
        if not isinstance(proposal, Proposal):
            raise self._wrong(f"must predict with a Proposal, not {proposal!r}")
        for token in proposal.tokens:
            if type(token) is not int or not 0 <= token < self._ids:
                raise self._wrong(f"must name token ids from 0 to {self._ids - 1}, not {token!r}")
        if not isinstance(proposal.confidence, float | int) or not 0 <= proposal.confidence <= 1:
            raise self._wrong(f"must give a confidence from 0 to 1, not {proposal.confidence!r}")
        if proposal.probs is not None and proposal.token not in proposal.probs:
            raise self._wrong(f"draws {proposal.token} from {proposal.probs!r}, which does not contain it")
        return proposal

    def _wrong(self, what: str) -> BadDrafter:
        return BadDrafter(f"{self._name} {what[:300]}")


Make = Callable[[Vocabulary, Sampling], Drafter]


def plugged(name: str) -> tuple[str, Make]:
    """The plug-in `name` of the group `DRAFTERS`: its name with its distribution's, and the maker of its drafters.

    Raises BadDrafter, as the drafters do for any error of their own.
    """
    with _as_bad_drafter():
        plugin = find(DRAFTERS, name)
    if plugin is None:
        raise BadDrafter(f"no installed distribution has a drafter {name!r}")
    return plugin.what, partial(_Plugged, plugin)


@contextmanager
def _as_bad_drafter() -> Iterator[None]:
    """Raise BadDrafter in place of BadPlugin."""
    try:
        yield
    except BadPlugin as error:
        raise BadDrafter(str(error)) from error


class _Plugged:
    """A drafter of a plug-in. `CheckedDrafter` checks its results."""

    def __init__(self, plugin: Plugin, vocabulary: Vocabulary, sampling: Sampling) -> None:
        with _as_bad_drafter():
            drafter = plugin.called(vocabulary, sampling, expected=DrafterError)
        self.width: int = getattr(drafter, "width", 0)
        self._expand = Plugin(plugin.what, getattr(drafter, "expand", None))

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        with _as_bad_drafter():
            expansion: Expansion = self._expand.called(text, tails, runners_up, expected=DrafterError)
        return expansion


class FallbackDrafter:
    """A drafter for one text. Once its engine has failed, for any reason, all its proposals have confidence 0.

    Such drafts are not worth sending. If one were sent all the same, the target would reject it.
    """

    def __init__(self, make: Callable[[], Drafter]) -> None:
        """`make` creates the drafter, which may fail, too. Raises SpecPairError and DrafterError of `make`."""
        self.failure: str | None = None  # the engine's error, in one line
        self.width = 1
        self._drafter: Drafter | None = None
        try:
            self._drafter = make()
            self.width = self._drafter.width
        except Exception as error:
            self._fail(error)

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        """The drafter's expansion. SpecPairError and DrafterError pass through: they are no engine failures."""
        if self._drafter is not None:
            try:
                return self._drafter.expand(text, tails, runners_up)
            except Exception as error:
                self._fail(error)
        unknown = [Proposal(0, 0.0, 1 if runners_up else None) for _ in tails]
        return Expansion(unknown, len(tails) + 1)  # `read` is above one a tail: no step time is learnt

    def read_prompt(
        self, text: Sequence[int], held: int, stopped: Callable[[], bool], answered: Callable[[], bool]
    ) -> int:
        """As `base.read_prompt`."""
        if self._drafter is not None:
            try:
                return read_prompt(self._drafter, text, held, stopped, answered)
            except Exception as error:
                self._fail(error)
        return 0

    def read_between_steps(self, stopped: Callable[[], bool]) -> int:
        """As `base.read_between_steps`."""
        if self._drafter is not None:
            try:
                return read_between_steps(self._drafter, stopped)
            except Exception as error:
                self._fail(error)
        return 0

    @property
    def context_read(self) -> ContextRead | None:
        """What the draft model has read of the text; None: the drafter is none with a model."""
        return getattr(self._drafter, "context_read", None)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, SpecPairError | DrafterError):
            raise error
        self.failure, self._drafter = first_line(error), None
