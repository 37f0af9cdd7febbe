"""The program `verifier`: the verifier with its settings as flags."""

import logging
import os
import signal
import sys
from contextlib import suppress

import uvicorn

from command_line import start
from verifier_server.app import create_app
from verifier_server.heads import with_head_deadline
from verifier_server.settings import SettingsError, from_flags

KEEP_ALIVE = 75  # seconds; longer than clients keep idle connections, so that they close first
HEAD_PATIENCE = 10.0  # seconds in which the head of a request must be there
PATIENCE = 5  # seconds that requests under way are given at the end; a stream of tokens may go on for ever


def main() -> int:
    """Serve until stopped. Returns the exit status: 2 for bad settings, 1 when the model could not be loaded."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:     %(message)s")
    try:
        settings, options = from_flags(sys.argv[1:])
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 2
    app = create_app(settings, on_failure=lambda: os.kill(os.getpid(), signal.SIGINT))
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http=with_head_deadline(HEAD_PATIENCE),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=PATIENCE,
        access_log=False,
        workers=1,
    )
    with suppress(KeyboardInterrupt):  # uvicorn has shut down in order and passes the signal on
        start.catch_interrupts()
        uvicorn.Server(config).run()
    return 1 if app.state.service.failure is not None else 0
