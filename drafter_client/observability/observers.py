"""Several observers of a pair as one."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from drafter_client.generation.events import Listener, to_all
from drafter_client.metrics.statistics import Stats
from drafter_client.pair import Observer


class Observers:
    """Hands the events of each text to several observers, in their order; see `drafter_client.pair.Observer`."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any]) -> Iterator[Listener]:
        """A context around one text, which yields the listener to its events."""
        with ExitStack() as stack:
            yield to_all(*(stack.enter_context(each.run(stats, settings)) for each in self._observers))
