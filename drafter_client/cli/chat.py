"""The command `drafter chat`: a conversation on a pair, in the terminal or line by line."""

import argparse
import sys
from collections.abc import Callable

from rich.console import Console

from backends.machine import cache_folder
from drafter_client.chat.session import Chat, ChatTerminated, modes_of
from drafter_client.chat.turn_input import EditedInput, LineInput, PipedInput, TurnReader, history_in
from drafter_client.cli.steps import check_draft_n, check_encoding, on_sigterm, pair_of, served_options
from specpair.protocol.errors import NoChatTemplate

_CAN_CHAT = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"  # small, and the drafter that the catalogue has for it, too


def run_chat(options: argparse.Namespace) -> int:
    """Chat until the user leaves. Returns the exit status. Raises what ended a chat without a terminal."""
    if options.system is not None:
        check_encoding("system message", options.system)
    with pair_of(options, waits=True) as pair, on_sigterm(_terminate):  # which ends the chat, and not only an answer
        check_draft_n(pair, options)
        if not pair.target.chat_template:
            raise NoChatTemplate(
                f"the target model {pair.target.name} has no chat template: serve an instruct model; the verifier "
                f"fetches one by its name: verifier -hf {_CAN_CHAT}"
            )
        Chat(
            pair,
            served_options(options),
            _reader(lambda: modes_of(pair)),
            system=options.system,
            markdown=options.markdown,
            sources=options.sources,
            interactive=sys.stdin is not None and sys.stdin.isatty(),
        ).run()
    return 0


def _reader(modes: Callable[[], list[str]]) -> TurnReader:
    """Where turns come from: an editor, where the terminal can move its cursor."""
    if sys.stdin is None or not sys.stdin.isatty():
        return PipedInput()
    if not sys.stdout.isatty() or Console().is_dumb_terminal:
        return LineInput()
    folder = cache_folder()
    try:
        history = history_in(folder and folder / "chat_history")
    except OSError as error:
        print(f"drafter: what is typed is not kept for the next run: {error}", file=sys.stderr)
        history = history_in(None)
    return EditedInput(history, modes)


def _terminate() -> None:
    raise ChatTerminated
