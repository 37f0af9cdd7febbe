"""Log lines on the progress of something that takes long, now and then."""

import logging
import time
from collections.abc import Callable
from math import inf

_log = logging.getLogger("specpair.verifier")
_LOG_EVERY = 2.0  # seconds between two lines


class ProgressLog:
    """Is called with a progress, and logs it if the last line is long ago."""

    def __init__(self, line: Callable[..., str], *, at_once: bool = False) -> None:
        """`line`: makes a line of what this is called with.
        `at_once`: whether the first progress is logged; else, one after two seconds is.
        """
        self._line, self._logged = line, -inf if at_once else time.monotonic()

    def __call__(self, *progress: float) -> None:
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY:
            self._logged = now
            _log.info("%s", self._line(*progress))


def of_loading() -> ProgressLog:
    """Is called with how much of a model is loaded, 0 to 1."""
    return ProgressLog(lambda fraction: f"loading the model: {100 * fraction:.0f} %")
