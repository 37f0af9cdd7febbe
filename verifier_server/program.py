"""The commands of the program `verifier`. Each imports its modules only when it runs."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpair.command_line.parser import Parsers
    from specpair.options.option import Option


def main() -> int:
    """Run a command; without a command's name, serve. Returns the exit status: 2 for bad settings, 1 when the command
    failed."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["key"]:
        from specpair.http_service.keys import key_command
        from verifier_server.settings import keys_file

        return key_command.run("verifier", arguments, keys_file)
    if command and command[0] in ("invite", "unshare", "cert"):
        from specpair.http_service.sharing import commands

        return commands.run("verifier", command[0], arguments)
    if command == ["models"]:
        return models(arguments)
    if command == ["compile"]:
        from verifier_server import compile_command

        return compile_command.run(arguments)
    if command == ["selftest"]:
        from verifier_server import selftest

        return selftest.run(arguments)
    if command == ["completion"]:
        from specpair.command_line import completion

        return completion.run("verifier", arguments, parsers)
    return serve(sys.argv[1:])


def serve(arguments: Sequence[str]) -> int:
    """Serve until stopped, with the settings as flags. Returns the exit status: see `listening.run`; 1 also when the
    model cannot be loaded, or the engine dies."""
    from specpair.command_line.start import keep_loaded_objects
    from specpair.http_service import listening
    from specpair.http_service.certificate import certificate_of
    from specpair.http_service.observability import logs
    from specpair.http_service.sharing.share import share_of
    from verifier_server.app import create_app, stop_process
    from verifier_server.fronts.fronts import fronts_of
    from verifier_server.settings import from_flags

    def make() -> listening.ServedApp:
        settings, address = from_flags(arguments)
        logs.configure(settings.log_format)
        if (share := share_of(address, settings.insecure, "verifier", address.key)) is not None:
            given = share.options(address.host)
            settings, address = settings.model_copy(update=given), address.model_copy(update=given)
        certificate = certificate_of(address.ssl_certfile, address.ssl_keyfile, address.key)
        failed, loaded = partial(stop_process, 1), [keep_loaded_objects]
        app = create_app(settings, on_failure=failed, on_success=lambda: [each() for each in loaded])
        service, fronts = app.state.service, None
        if address.processes > 1:
            fronts = fronts_of(app, settings, address, failed)
            loaded.append(fronts.loaded)
        return listening.ServedApp(
            *(app, address.host, address.port, certificate, share),
            status=lambda: int(service.failure is not None),
            accepting=fronts,
        )

    return listening.run("verifier", make)


def models(arguments: Sequence[str]) -> int:
    """Run the command `models`, which the drafter has, too. Returns the exit status."""
    from backends.machine import available_bytes
    from backends.registry import room
    from gateway.openai_api.answer import reply_style
    from models.commands import command
    from specpair.engines.errors import ModelLoadError
    from specpair.engines.load_options import FreeMemory, LoadOptions

    def room_here() -> FreeMemory | None:
        try:
            return room("llama_cpp", LoadOptions())
        except ModelLoadError:  # it is not installed
            return FreeMemory(available_bytes())

    parser = command.parser("verifier")
    return command.run(parser, parser.parse(arguments), reply_style, lambda: None, room_here)


def parsers(options: "Mapping[str, Option] | None" = None) -> "Parsers":
    """The parsers of all commands, by command, for completions and the documentation.

    `options`: the settings for which they have flags, beside the address; None: all.
    """
    from models.commands import command as models_command
    from specpair.command_line import completion
    from specpair.http_service.keys import key_command
    from specpair.http_service.sharing import commands
    from verifier_server import compile_command, selftest
    from verifier_server.flags import flags_parser
    from verifier_server.options import OPTIONS

    taken = OPTIONS if options is None else options
    return {
        "verifier": lambda: flags_parser(taken),
        "verifier compile": lambda: compile_command.parser(taken),
        "verifier selftest": lambda: selftest.parser(taken),
        "verifier models": lambda: models_command.parser("verifier"),
        "verifier key": lambda: key_command.parser("verifier"),
        **{f"verifier {each}": partial(commands.parser, "verifier", each) for each in commands.COMMANDS},
        "verifier completion": lambda: completion.parser("verifier"),
    }
