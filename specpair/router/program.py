"""The command `specpair router`."""

import sys

from specpair.http_service import listening
from specpair.http_service.keys import key_command
from specpair.http_service.observability import logs
from specpair.router.app import create_app
from specpair.router.settings import from_flags, keys_file


def main() -> int:
    """Serve until stopped. Returns the exit status: see `listening.run`."""
    arguments = sys.argv[2:]
    if arguments[:1] == ["key"]:
        return key_command.run("specpair router", arguments[1:], keys_file)

    def make() -> listening.Served:
        settings, nodes = from_flags(arguments)
        logs.configure(settings.log_format)
        return listening.Served(create_app(settings, nodes), settings.host, settings.port)

    return listening.run("specpair router", make)
