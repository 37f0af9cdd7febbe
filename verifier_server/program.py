"""The program `verifier`: chooses the command. Each is imported when it is run, as no other one needs what it does."""

import sys


def main() -> int:
    """Run a command; without the name of one, serve. Returns the exit status: 2 for bad settings, 1 when the command
    failed."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["key"]:
        from specpair.http_service.keys import key_command
        from verifier_server.flags import keys_file

        return key_command.run("verifier", arguments, keys_file)
    if command == ["models"]:
        from verifier_server.commands import models_command

        return models_command.run(arguments)
    if command == ["compile"]:
        from verifier_server.commands import compile_command

        return compile_command.run(arguments)
    if command == ["selftest"]:
        from verifier_server.commands import selftest_command

        return selftest_command.run(arguments)
    if command == ["completion"]:
        from specpair.command_line import completion
        from verifier_server.commands.parsers import parsers

        return completion.run("verifier", arguments, parsers)
    from verifier_server.commands import serve_command

    return serve_command.run(sys.argv[1:])
