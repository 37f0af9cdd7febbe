"""Draining: a service that is told to stop takes no new texts, and lets those under way end."""

import asyncio
import logging
from collections.abc import Callable
from math import inf

from specpair.protocol.errors import ShuttingDown

_log = logging.getLogger("specpair.service")


class Draining:
    """Whether a service drains, and when it has drained. Used in the event loop."""

    def __init__(self, seconds: float, under_way: Callable[[], float]) -> None:
        """`seconds`: the grace of the texts under way; 0: none.
        `under_way()`: seconds until no text is under way if nothing happens until then; 0: none is now; infinity: one
            is until `changed` is called.
        """
        self.seconds, self._under_way = seconds, under_way
        self.begun = False
        self._then: Callable[[], object] | None = None  # None: not draining, or it is over
        self._grace: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None

    def check_new_text(self) -> None:
        """Raise ShuttingDown while no new text is taken. To be called before a text is begun, wherever that is."""
        if self.begun:
            raise ShuttingDown("this process is draining and takes no new texts: ask again when it is back")

    def begin(self, then: Callable[[], object]) -> None:
        """Take no new texts, and call `then` when none is under way or the grace is over."""
        self.begun, self._then = True, then
        self.changed()
        if self._then is not None:
            self._grace = asyncio.get_running_loop().call_later(self.seconds, self._give_up)
            _log.info("draining: no new texts are taken, those under way have %g s to end", self.seconds)

    def changed(self) -> None:
        """Look whether texts are under way: a request or a text is over."""
        if self._then is None:
            return
        if self._look is not None:
            self._look.cancel()
            self._look = None
        wait = self._under_way()
        if wait <= 0.0:
            self._end("drained: no text is under way any more")
        elif wait < inf:
            self._look = asyncio.get_running_loop().call_later(wait, self.changed)

    def cancel(self) -> None:
        """Do not wait any longer, and do not call `then`. New texts stay refused."""
        for timer in (self._grace, self._look):
            if timer is not None:
                timer.cancel()
        self._then = None

    def _give_up(self) -> None:
        self._end("draining took too long: the texts under way are ended")

    def _end(self, said: str) -> None:
        then, waited = self._then, self._grace is not None
        self.cancel()
        if waited:
            _log.info("%s", said)
        if then is not None:
            then()
