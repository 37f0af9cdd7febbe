"""The command `specpair router`."""

import sys

from specpair.command_line.errors import SettingsError
from specpair.http_service.keys import key_command
from specpair.http_service.listening import bind_sockets, configured, serve
from specpair.http_service.observability import logs
from specpair.router.app import create_app
from specpair.router.settings import from_flags, keys_file


def main() -> int:
    """Serve until stopped. Returns the exit status: 2 for bad settings, 1 when the port is in use."""
    arguments = sys.argv[2:]
    if arguments[:1] == ["key"]:
        return key_command.run("specpair router", arguments[1:], keys_file)
    logs.configure("text")  # until the settings are read
    try:
        settings, nodes = from_flags(arguments)
        logs.configure(settings.log_format)
        app = create_app(settings, nodes)
    except SettingsError as error:
        print(f"specpair router: {error}", file=sys.stderr)
        return 2
    try:
        sockets = bind_sockets(settings.host, settings.port)
    except SettingsError as error:
        print(f"specpair router: {error}", file=sys.stderr)
        return 1
    serve(configured(app), sockets)
    return 0
