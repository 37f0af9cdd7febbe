"""The program `verifier`: the verifier with its settings as flags."""

import os
import signal
import sys

from specpair.command_line.start import keep_loaded_objects
from specpair.http_service.keys import key_command
from specpair.http_service.listening import bind_sockets, configured, serve
from specpair.http_service.observability import logs
from verifier_server.app import create_app
from verifier_server.flags import from_flags, keys_file
from verifier_server.settings import SettingsError


def main() -> int:
    """Serve until stopped, or run another command. Returns the exit status: 2 for bad settings, 1 when the port is in
    use, the model cannot be loaded, the keys cannot be changed, or a check of the self-test failed."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["key"]:
        return key_command.run("verifier", arguments, keys_file)
    if command == ["models"]:
        from verifier_server.commands import models_command  # serving does without

        return models_command.run(arguments)
    if command == ["compile"]:
        from verifier_server.commands import compile_command  # serving does without

        return compile_command.run(arguments)
    if command == ["selftest"]:
        from verifier_server.commands import selftest_command

        return selftest_command.run(arguments)
    logs.configure("text")  # until the settings are read
    try:
        settings, address = from_flags(sys.argv[1:])
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
