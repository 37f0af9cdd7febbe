"""The program `drafter`: chooses the command, and turns errors into messages and exit statuses."""

import io
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drafter_client.cli.batch import run_many
from drafter_client.cli.chat import run_chat
from drafter_client.cli.commands import (
    chat_options,
    compare_options,
    drafter_options,
    explained,
    serve_options,
    solo_options,
)
from drafter_client.cli.compare import run_compare
from drafter_client.cli.draft import run_draft
from drafter_client.cli.settings import keys_file
from drafter_client.cli.shared_steps import INTERRUPTED
from drafter_client.cli.solo import run_solo_command
from drafter_client.errors import DrafterError
from specpair.command_line import lab_commands, start
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.http_service.keys import key_command
from specpair.protocol.errors import SpecPairError
from specpair.protocol.terminal_text import several_lines

TERMINATED = 143  # exit status of a program ended by SIGTERM
SWITCH_INTERVAL = 0.0005  # seconds; at the default of 5 ms a computing thread delays responses by that much


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns the exit status: 0 done, 1 an error was reported, 2 bad flags, 130 interrupted, 143 ended
    by SIGTERM."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.setswitchinterval(SWITCH_INTERVAL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that its encoding lacks are replaced
            stream.reconfigure(errors="replace")
    try:
        start.catch_interrupts()
        with _ended_by_sigterm() as terminated:
            status = _interruptible(arguments)
        return TERMINATED if terminated and status == INTERRUPTED else status
    except (SpecPairError, DrafterError, BackendError, lab_commands.MissingLab) as error:
        print(f"drafter: {several_lines(str(error))}", file=sys.stderr)
        return 1


def _interruptible(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("\ndrafter: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["chat"]:
        return _run_with_model(run_chat, chat_options(arguments[1:]))
    if arguments[:1] == ["serve"]:
        from drafter_client.cli.serve import run_serve  # with a web framework, which the other commands do without

        return _run_with_model(run_serve, serve_options(arguments[1:]))
    if arguments[:1] == ["solo"]:
        return _run_with_model(run_solo_command, solo_options(arguments[1:]))
    if f"drafter {' '.join(arguments[:1])}" in lab_commands.NAMES:
        return lab_commands.lab_command(f"drafter {arguments[0]}").run(arguments[1:])
    if arguments[:1] == ["models"]:
        from drafter_client.cli.without_text.models import (
            run_models,  # with llama.cpp, which the other commands may do without
        )

        return run_models(arguments[1:])
    if arguments[:1] == ["completion"]:
        from drafter_client.cli.without_text.parsers import parsers  # of all commands, with what each of them imports
        from specpair.command_line import completion

        return completion.run("drafter", arguments[1:], parsers)
    if arguments[:1] == ["key"]:
        return key_command.run("drafter", arguments[1:], keys_file)
    if arguments[:1] == ["compare"]:
        return _run_with_model(run_compare, compare_options(arguments[1:]))
    options = drafter_options(arguments)
    return _run_with_model(run_draft if options.prompt_file is None else run_many, options)


def _run_with_model(run: Callable[[Namespace], int], options: Namespace) -> int:
    try:
        return run(options)
    except ModelLoadError as error:
        raise ModelLoadError(explained(error, options)) from error


@contextmanager
def _ended_by_sigterm() -> Iterator[list[int]]:
    """A context in which SIGTERM acts like Ctrl-C: sessions are released, and the text so far is shown. The list is
    empty until SIGTERM comes."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield received
        return

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
