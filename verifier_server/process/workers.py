"""Refuses to serve with several worker processes: sessions live in one."""

import os
import sys
from collections.abc import Mapping, Sequence

from verifier_server.settings import SettingsError


def refuse_workers(arguments: Sequence[str] = sys.argv, environment: Mapping[str, str] = os.environ) -> None:
    """Raise SettingsError if more than one worker process is asked for."""
    count = environment.get("UVICORN_WORKERS") or environment.get("WEB_CONCURRENCY", "1")
    for at, argument in enumerate(arguments):
        if argument in ("--workers", "-w") and at + 1 < len(arguments):
            count = arguments[at + 1]
        elif argument.startswith("--workers="):
            count = argument.partition("=")[2]
    if count.isdecimal() and int(count) > 1:
        raise SettingsError(
            f"--workers {count}: sessions and their KV caches live in one process, and a second one would not know "
            "them. Run one verifier per model copy on its own port, and let a proxy route on the X-Session-Id header"
        )
