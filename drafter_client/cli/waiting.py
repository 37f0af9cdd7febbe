"""Waits at the start of a command for a verifier that does not answer yet."""

import time
from collections.abc import Callable
from typing import TypeVar

from drafter_client.errors import VerifierUnreachable
from drafter_client.http.retries import CHECK_PAUSE

T = TypeVar("T")


def once_there(
    make: Callable[[Callable[[str], object]], T],
    patience: float,
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The result of `make`, which is repeated while no verifier answers.

    `make`: is given `say` for its notices. Those that each attempt would repeat are not said.
    `patience`: seconds to wait at most, of which `say` is told.
    `clock`: in seconds.

    Raises what `make` raises: VerifierUnreachable when the patience is over.
    """
    began, waits = clock(), False

    def notice(line: str) -> None:
        if not waits:
            say(line)

    while True:
        try:
            made = make(notice)
        except VerifierUnreachable as error:
            if clock() - began >= patience:
                raise
            notice(f"waiting for the verifier, {patience:g} s at most (--patience): {error}")
            waits = True
        else:
            waits = False
            return made
        sleep(CHECK_PAUSE)
