"""Models that settings name on the hub: fetched at the start, with a log line now and then."""

import logging
import time
from collections.abc import Callable

from backends.named_model import file_of
from verifier_server.settings import Settings

_log = logging.getLogger("specpair.verifier")
_LOG_EVERY = 2.0  # seconds between two log lines on the progress


def with_files(settings: Settings, report: Callable[[float], None] = lambda _share: None) -> Settings:
    """The settings with the files of the models that they name on the hub, which are fetched if they are missing.

    `report`: is told how much of all is here, 0 to 1. What it raises ends the fetching, which goes on another time.

    Raises ModelLoadError.
    """
    named = (
        ("model", settings.hf, settings.backend),
        ("draft_model", settings.draft_hf, settings.draft_engine),
    )
    wanted = [(setting, name, engine) for setting, name, engine in named if name is not None]
    found = {}
    for at, (setting, name, engine) in enumerate(wanted):
        found[setting] = file_of(name, engine, _Fetching(name, report, at, len(wanted)))
        _log.info("%s is %s", name, found[setting])
    return settings.model_copy(update=found) if found else settings


class _Fetching:
    """Logs how much of a model is here, and reports it. The model is number `at` of `count`, from 0 on."""

    def __init__(self, name: str, report: Callable[[float], None], at: int, count: int) -> None:
        self._name, self._report, self._at, self._count = name, report, at, count
        self._logged = time.monotonic() - _LOG_EVERY

    def __call__(self, done: int, total: int) -> None:
        """`done`, `total`: bytes."""
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY:
            self._logged = now
            _log.info("fetching %s: %.2f of %.2f GB", self._name, done / 1e9, total / 1e9)
        self._report((self._at + done / max(total, 1)) / self._count)
