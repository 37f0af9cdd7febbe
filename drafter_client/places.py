"""The places of a pair's texts: for one text at a time each."""

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from drafter_client.draft_sources import Drafting
from drafter_client.errors import PairBusy
from drafter_client.http.client import VerifierClient
from specpair.drafters.warm_engine import warmest


class Place(NamedTuple):
    """A connection, and which of `Drafting.drafters` makes the drafter."""

    client: VerifierClient
    number: int


class Places:
    """The places that are free. May be used from any thread."""

    def __init__(self, clients: Iterable[VerifierClient]) -> None:
        """`clients`: one for each place."""
        self._free = [Place(client, number) for number, client in enumerate(clients)]
        self._all = len(self._free)
        self._choosing = threading.Lock()  # guards those that are free

    @contextmanager
    def taken(self, drafting: Drafting, prompt_ids: Sequence[int], cache_salt: str) -> Generator[Place, None, None]:
        """A context with a free place: the one whose draft model need not read the most of the prompt. Raises
        PairBusy."""
        with self._choosing:
            if not self._free:
                raise PairBusy(
                    f"this pair writes {self._all} texts at a time: end one, or make the pair with more (texts=…)"
                )
            place = self._free[0]
            if drafting.warm:
                engines = [(each, drafting.warm[each.number]) for each in self._free]
                place = warmest(engines, prompt_ids, cache_salt)
            self._free.remove(place)
        try:
            yield place
        finally:
            with self._choosing:
                self._free.append(place)
