"""The program `verifier`: the verifier with its settings as flags."""

import os
import signal
import sys
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from command_line import start
from http_service.keys import key_command
from http_service.listening import Server, bind_sockets
from http_service.observability import logs
from http_service.request_head_timeout import with_head_deadline
from verifier_server.app import create_app
from verifier_server.flags import from_flags, keys_file
from verifier_server.settings import SettingsError

KEEP_ALIVE = 75  # seconds; longer than clients keep idle connections, so that the client closes first
HEAD_PATIENCE = 10.0  # seconds within which the head of a request must be complete
PATIENCE = 5  # seconds that requests have to finish at shutdown; a stream of tokens may never finish


def main() -> int:
    """Serve until stopped, or change the keys. Returns the exit status: 2 for bad settings, 1 when the port is in use,
    the model cannot be loaded, or the keys cannot be changed."""
    if sys.argv[1:2] == ["key"]:
        return key_command.run("verifier", sys.argv[2:], keys_file)
    logs.configure("text")  # until the settings are read
    try:
        settings, address = from_flags(sys.argv[1:])
        logs.configure(settings.log_format)
        app = create_app(settings, on_failure=lambda: os.kill(os.getpid(), signal.SIGINT))
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 2
    try:
        sockets = bind_sockets(address.host, address.port)
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 1
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after its shutdown
        start.catch_interrupts()
        Server(_config(app)).run(sockets)
    return 1 if app.state.service.loader.failure is not None else 0


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        proxy_headers=False,  # uvicorn would trust X-Forwarded-For from every process on this machine
        http=with_head_deadline(HEAD_PATIENCE),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=PATIENCE,
        access_log=False,  # `ObservedRequests` writes the access lines
        log_config=None,
        workers=1,
    )
