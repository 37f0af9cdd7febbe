"""The program `verifier`: the verifier with its settings as flags."""

import logging
import os
import signal
import sys
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from command_line import start
from verifier_server.app import create_app
from verifier_server.process.head_timeout import with_head_deadline
from verifier_server.process.listening import Server, take
from verifier_server.settings import SettingsError, from_flags

KEEP_ALIVE = 75  # seconds; longer than clients keep idle connections, so that they close first
HEAD_PATIENCE = 10.0  # seconds in which the head of a request must be there
PATIENCE = 5  # seconds that requests under way are given at the end; a stream of tokens may go on for ever


def main() -> int:
    """Serve until stopped. Returns the exit status: 2 for bad settings, 1 when the port is in use or the model
    cannot be loaded."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:     %(message)s")
    try:
        settings, options = from_flags(sys.argv[1:])
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 2
    try:
        sockets = take(options.host, options.port)
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 1
    app = create_app(settings, on_failure=lambda: os.kill(os.getpid(), signal.SIGINT))
    with suppress(KeyboardInterrupt):  # uvicorn has shut down in order and passes the signal on
        start.catch_interrupts()
        Server(_config(app)).run(sockets)
    return 1 if app.state.service.failure is not None else 0


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        proxy_headers=False,  # uvicorn believes X-Forwarded-For from this machine, where everybody may send it
        http=with_head_deadline(HEAD_PATIENCE),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=PATIENCE,
        access_log=False,
        workers=1,
    )
