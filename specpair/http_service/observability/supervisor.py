"""What systemd is told of a service, in the protocol of sd_notify(3): that it is ready, that it works, that it ends.

Nothing is told without `NOTIFY_SOCKET`, which systemd sets for a unit of `Type=notify`. With `WatchdogSec=` it also
says how long a service may be silent: then it ends the service, and `Restart=` says whether it starts anew.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

_log = logging.getLogger("specpair.service")


class Supervisor:
    """Tells systemd, if it has started this process. `tell` is thread-safe, all else is for the event loop."""

    def __init__(
        self, works: Callable[[float], bool] = lambda _seconds: True, environment: Mapping[str, str] = os.environ
    ) -> None:
        """`works(seconds)`: whether what runs beside the event loop has made progress within so many seconds."""
        self._works, address = works, environment.get("NOTIFY_SOCKET", "")
        self._address = address.replace("@", "\0", 1) if address.startswith("@") else address
        asked = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._silence = int(asked) / 1e6 if asked.isdecimal() and ours and address else 0.0  # seconds; 0: for ever
        self._task: asyncio.Task[None] | None = None

    def tell(self, *lines: str) -> None:
        """Tell assignments, such as `READY=1`. What cannot be told now is lost."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.setblocking(False)
                sending.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.debug("systemd could not be told %s: %s", lines, error)

    def start(self) -> None:
        """From now on tell that the service works, until the event loop or `works` shows that it does not."""
        self._task = asyncio.create_task(self._watch()) if self._silence else None

    def end(self) -> None:
        """Tell nothing of that any more."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        worked = True
        while True:
            works = self._works(self._silence)
            if works:
                self.tell("WATCHDOG=1")
            elif worked:
                _log.error("no progress for %g s: systemd is told no more that this service works", self._silence)
                self.tell("STATUS=hangs")
            worked = works
            await asyncio.sleep(self._silence / 2)
