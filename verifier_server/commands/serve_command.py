"""The command `verifier` without a name: serves, with its settings as flags."""

import os
import signal
import sys
from collections.abc import Sequence

from specpair.command_line.start import keep_loaded_objects
from specpair.http_service.listening import bind_sockets, configured, serve
from specpair.http_service.observability import logs
from verifier_server.app import create_app
from verifier_server.flags import from_flags
from verifier_server.settings import SettingsError


def run(arguments: Sequence[str]) -> int:
    """Serve until stopped. Returns the exit status: 2 for bad settings, 1 when the port is in use, or the model cannot
    be loaded."""
    logs.configure("text")  # until the settings are read
    try:
        settings, address = from_flags(arguments)
        logs.configure(settings.log_format)
        app = create_app(
            settings,
            on_failure=lambda: os.kill(os.getpid(), signal.SIGINT),
            on_success=keep_loaded_objects,
        )
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 2
    try:
        sockets = bind_sockets(address.host, address.port)
    except SettingsError as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 1
    serve(configured(app), sockets)
    return 1 if app.state.service.loader.failure is not None else 0
