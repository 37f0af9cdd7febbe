"""Models that settings name on the hub: fetched at the start, with a log line now and then."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from backends.named_model import file_of
from specpair.counted import sized
from verifier_server.process.progress_log import ProgressLog
from verifier_server.settings import Settings

_log = logging.getLogger("specpair.verifier")


def with_files(settings: Settings, report: Callable[[float], None] = lambda _share: None) -> Settings:
    """The settings with the files of the models that they name on the hub, which are fetched if they are missing.

    `report`: is told how much of all is here, 0 to 1. What it raises ends the fetching, which goes on another time.

    Raises ModelLoadError.
    """
    target = settings.load_options()
    draft = replace(target, slots=1, device=settings.draft_device or target.device)
    named = (
        ("model", settings.hf, settings.backend, target),
        ("draft_model", settings.draft_hf, settings.draft_engine, draft),
    )
    wanted = [(setting, name, engine, options) for setting, name, engine, options in named if name is not None]
    found = {}
    for at, (setting, name, engine, options) in enumerate(wanted):
        log = ProgressLog(partial(_line, name), at_once=True)

        def progress(done: int, total: int, log: ProgressLog = log, at: int = at) -> None:
            log(done, total)
            report((at + done / max(total, 1)) / len(wanted))

        found[setting] = file_of(name, engine, progress, options, f"verifier models pull {name}")
        _log.info("%s is %s", name, found[setting])
    return settings.model_copy(update=found) if found else settings


def _line(name: str, done: float, total: float) -> str:
    return f"fetching {name}: {sized(done)} of {sized(total)}"
