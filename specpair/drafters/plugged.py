"""Drafters of other distributions: an error names the distribution, and not the code that uses its drafter."""

from collections.abc import Callable, Sequence

from specpair.drafters.base import Drafter, Expansion
from specpair.drafters.errors import BadDrafter, DrafterError
from specpair.engines.vocabulary import Vocabulary
from specpair.plugins import DRAFTERS, BadPlugin, Plugin, find
from specpair.speculation.sampling.sampling import Sampling

Make = Callable[[Vocabulary, Sampling], Drafter]


def plugged(name: str) -> tuple[str, Make]:
    """The plug-in `name` of the group `DRAFTERS`: its name with its distribution's, and what makes its drafters.

    Raises BadDrafter, as the drafters do for any error of their own.
    """
    try:
        plugin = find(DRAFTERS, name)
    except BadPlugin as error:
        raise BadDrafter(str(error)) from error
    if plugin is None:
        raise BadDrafter(f"no installed distribution has a drafter {name!r}")

    def make(vocabulary: Vocabulary, sampling: Sampling) -> Drafter:
        return _Plugged(plugin, vocabulary, sampling)

    return plugin.what, make


class _Plugged:
    """A drafter of a plug-in."""

    def __init__(self, plugin: Plugin, vocabulary: Vocabulary, sampling: Sampling) -> None:
        try:
            drafter = plugin.called(vocabulary, sampling, expected=DrafterError)
        except BadPlugin as error:
            raise BadDrafter(str(error)) from error
        self.width: int = getattr(drafter, "width", 0)
        self._expand = Plugin(plugin.what, getattr(drafter, "expand", None))

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        try:
            expansion: Expansion = self._expand.called(text, tails, runners_up, expected=DrafterError)
        except BadPlugin as error:
            raise BadDrafter(str(error)) from error
        return expansion  # `custom.CheckedDrafter` checks it
