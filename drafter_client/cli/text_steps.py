"""Steps of the commands that write texts: read prompts, build options, show a text as it comes."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from drafter_client.batch.prompts import FilePrompt, parse_prompts
from drafter_client.conversation import Messages
from drafter_client.display.readout import Readout
from drafter_client.errors import BadOption, BadPrompt, BadPromptFile, DrafterError
from drafter_client.generation.generation import Generation, Tokens
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.statistics import SOLO
from specpair.command_line.options import given
from specpair.engines.errors import BackendError
from specpair.options.option import options_of
from specpair.protocol.errors import SpecPairError
from specpair.protocol.terminal_text import is_text
from specpair.speculation.sampling.sampling import SamplingOptions

INTERRUPTED = 130  # exit status of a program ended by Ctrl-C


def drawing_options(options: argparse.Namespace) -> Options:
    """The options that every mode and `solo` have, from the flags: where the text ends, and how it is sampled."""
    drawn = (*options_of(SamplingOptions), "max_tokens", "stop")
    return Options(**{name: value for name, value in given(Options, options).items() if name in drawn})


def served_options(options: argparse.Namespace) -> Options:
    """The options of all texts that `drafter serve` generates, from the flags."""
    return Options(**given(Options, options))


def text_options(options: argparse.Namespace) -> Options:
    """All options of a text, from the flags."""
    flags = given(Options, options) | {"explain": options.verbose, "prediction": read_prediction(options)}
    return Options(**flags)


def read_prompt(options: argparse.Namespace) -> str:
    """The prompt, from the flag or from standard input. Raises BadPrompt."""
    text: str
    if options.prompt is not None:
        text = options.prompt
        check_encoding("prompt", text)
    elif sys.stdin is None or sys.stdin.isatty():
        raise BadPrompt("no prompt: give --prompt, or pipe one into standard input")
    else:
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")  # a byte order mark is no text: PowerShell sends one
        except UnicodeDecodeError:
            raise BadPrompt("standard input is not UTF-8 text") from None
    if not text:
        raise BadPrompt(
            "the prompt is empty: give at least one character to continue, with --prompt or in standard input"
        )
    return text


def read_prediction(options: argparse.Namespace) -> str | None:
    """The prediction of the text, from the flag or from a file; None: there is none. Raises BadOption."""
    text: str | None = options.prediction
    path: Path | None = options.prediction_file
    if path is not None:
        try:
            text = path.read_bytes().decode("utf-8-sig")  # as it is, with its line ends, without a byte order mark
        except OSError as error:
            raise BadOption(f"--prediction-file: {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadOption(f"--prediction-file: {path} is not UTF-8 text") from None
    elif text is not None and not is_text(text):
        raise BadOption("--prediction is not valid text in this terminal's encoding: use UTF-8")
    return text


def read_prompts(path: Path, defaults: Options, *, chat: bool = False, system: str | None = None) -> list[FilePrompt]:
    """The prompts in a file, read by `parse_prompts`. Raises BadPromptFile."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadPromptFile(f"the prompt file {path} cannot be read: {error.strerror}") from None
    return parse_prompts(data, str(path), defaults, chat=chat, system=system)


def prompt_ids(pair: Pair, said: str | Messages, chat: bool, system: str | None) -> list[int]:
    """The token ids of a prompt.

    `chat`: whether `said`, and the system message, go into the target's chat template, as several messages always do.
    """
    return pair.chat(said, system) if chat or not isinstance(said, str) else pair.encode(said)


def check_system(options: argparse.Namespace) -> None:
    """Raise BadPrompt for a system message without --chat, or one that is no text."""
    if options.system is not None:
        if not options.chat:
            raise BadPrompt("--system is a message of a chat: add --chat")
        check_encoding("system message", options.system)


def check_encoding(what: str, text: str) -> None:
    """Raise BadPrompt for lone surrogates: Python passes bytes that the terminal's encoding lacks in this form."""
    if not is_text(text):
        raise BadPrompt(f"the {what} is not valid text in this terminal's encoding: use UTF-8")


def show(generation: Generation, readout: Readout, then: Callable[[], None] | None = None) -> int:
    """Show a text as it comes, call `then` at its end, and show its metrics, also if it was interrupted or failed.

    Returns the exit status. Raises the error that ended the text.
    """
    status = 0
    failure: Exception | None = None
    readout.begin(of_two=generation.stats.mode not in (SOLO, Mode.TARGET))
    try:
        with generation:
            for event in generation:
                if isinstance(event, Tokens):
                    readout.add(event)
        if then is not None:
            then()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (SpecPairError, DrafterError, BackendError) as error:
        if not generation.stats.token_ids:
            raise
        failure = error
        generation.stats.failed = True
    finally:
        readout.close()
    readout.end(generation.stats, generation.text)
    if failure is not None:
        raise failure
    return status
