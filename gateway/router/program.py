"""The command `specpair router`."""

import sys

from gateway.router.app import create_app
from gateway.router.settings import flags_parser as parser
from gateway.router.settings import from_flags, keys_file
from specpair.http_service import listening
from specpair.http_service.keys import key_command
from specpair.http_service.observability import logs

__all__ = ["main", "parser"]


def main() -> int:
    """Serve until stopped. Returns the exit status: see `listening.run`."""
    arguments = sys.argv[2:]
    if arguments[:1] == ["key"]:
        return key_command.run("specpair router", arguments[1:], keys_file)

    def make() -> listening.ServedApp:
        settings, nodes = from_flags(arguments)
        logs.configure(settings.log_format)
        return listening.ServedApp(create_app(settings, nodes), settings.host, settings.port)

    return listening.run("specpair router", make)
