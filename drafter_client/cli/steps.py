"""Steps that several commands share: make the pair, read prompts and options, show a text as it comes."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from drafter_client.cli.prompts import FilePrompt, parse_prompts
from drafter_client.conversation import Messages
from drafter_client.display.progress import loading, say_notice, say_outage, say_prompt, verifier_loading
from drafter_client.display.readout import Readout
from drafter_client.draft_sources import Custom, DraftModel, Lookup, Source
from drafter_client.errors import BadKey, BadOption, BadPrompt, BadPromptFile, DrafterError, VerifierUnreachable
from drafter_client.generation.generation import Generation, Tokens
from drafter_client.hosts import Host, HostsFile, answering
from drafter_client.http.outages import Outage
from drafter_client.http.retries import CHECK_PAUSE
from drafter_client.http.trust import SYSTEM, Trust
from drafter_client.modes.memory import memory_file
from drafter_client.options import Mode, Observer, Options
from drafter_client.pair import Pair
from drafter_client.program_options import ENGINE, NGRAM, is_plugged_drafter
from drafter_client.statistics import SOLO
from drafter_client.trace.writer import TraceFolder
from specpair.command_line.options import option_values
from specpair.command_line.start import keep_loaded_objects
from specpair.drafters.custom import plugged
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.grammar.of_text import prepare_grammars
from specpair.options.option import options_of
from specpair.protocol.errors import SpecPairError
from specpair.protocol.terminal_text import is_text
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.policy.experience import DraftingPolicy
from specpair.speculation.sampling.grammar import given_grammars
from specpair.speculation.sampling.sampling import SamplingOptions

INTERRUPTED = 130  # exit status of a program ended by Ctrl-C

T = TypeVar("T")


def pair_of(
    options: argparse.Namespace,
    texts: int = 1,
    observer: Observer | None = None,
    on_outage: Callable[[Outage], None] | None = None,
    log: Callable[[str], object] | None = None,
    *,
    serves: bool = False,
    waits: bool = False,
) -> Pair:
    """The pair that the flags describe.

    `observer`: takes the events of each text, in place of a trace.
    `on_outage`: called with each outage, too.
    `log`: called with notices of waits for the verifier; None: they are shown.
    `serves`: whether clients request its texts, any of which may have a grammar.
    `waits`: whether to wait for a verifier that does not answer yet, as long as for one that went away.
    """
    say = say_outage(log)

    def report(outage: Outage) -> None:
        say(outage)
        if on_outage is not None:
            on_outage(outage)

    trace = None if options.profile is None else TraceFolder(options.profile, text=options.profile_text)
    source = _source(options)

    def made(notice: Callable[[str], object]) -> Pair:
        return Pair(
            verifier(options),
            source,
            api_key=api_key(options),
            trust=trust(options),
            branches=1 if options.lockstep or options.strategy not in DRAFTER_INVARIANT else options.branches,
            texts=texts,
            observer=observer or trace,
            memory=memory_file() if options.mode is Mode.AUTO and options.remember else None,
            corpus=options.draft_corpus,
            policy=options.policy or DraftingPolicy,
            patience=options.patience,
            start_patience=getattr(options, "start_patience", None),  # of `drafter serve` only
            on_wait=on_wait,
            on_outage=report,
            on_prompt=say_prompt() if log is None else None,
            on_notice=notice,
        )

    with verifier_loading(log) as on_wait:
        pair = retry_until_there(made, options.patience if waits else 0.0, log or say_notice)
    if serves or given_grammars(options):
        drafting = pair.paired.drafting
        for vocabulary in (drafting.vocabulary, *(engine.vocabulary for engine in drafting.warm)):
            prepare_grammars(vocabulary)
    keep_loaded_objects()
    return pair


def retry_until_there(
    make: Callable[[Callable[[str], object]], T],
    patience: float,
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Call `make`, again while no verifier answers, at most `patience` seconds. Returns its result.

    `make`: gets a callback for notices, of which only those of the first attempt are shown.

    Raises what `make` raises: VerifierUnreachable when the patience is over.
    """
    began, waits = clock(), False

    def notice(line: str) -> None:
        if not waits:
            say(line)

    while True:
        try:
            made = make(notice)
            waits = False
            return made
        except VerifierUnreachable as error:
            if clock() - began >= patience:
                raise
            notice(f"waiting for the verifier, {patience:g} s at most (--patience): {error}")
            waits = True
        sleep(CHECK_PAUSE)


def verifier(options: argparse.Namespace) -> str:
    """The verifier's address; for a host that was joined, the one at which it answers now. Raises
    VerifierUnreachable if it answers nowhere."""
    host: Host | None = options.joined
    if host is None:
        return str(options.verifier)
    found = answering(host)
    if found is not host:
        HostsFile().keep(found)
        options.joined = found
    return found.url


def trust(options: argparse.Namespace) -> Trust:
    """Whose certificates are taken."""
    return SYSTEM if options.joined is None else options.joined.trust


def api_key(options: argparse.Namespace) -> str | None:
    key: SecretStr | None = options.api_key
    return None if key is None else key.get_secret_value()


def check_draft_n(pair: Pair, options: argparse.Namespace) -> None:
    """Raise BadOption if the draft tokens a round are more than the verifier judges at once."""
    most, asked = pair.target.max_drafts, options.draft_n
    if asked != "auto" and asked > most:
        key = options.settings.key("draft_n")
        raise BadOption(f"{key}: must be at most {most}, as many as this verifier judges at once, got {asked}")


def _source(options: argparse.Namespace) -> Source | None:
    if options.mode in (Mode.TARGET, Mode.FUSED):
        return None
    if options.backend == NGRAM:
        return Lookup()
    if is_plugged_drafter(options.backend):
        what, make = plugged(options.backend)
        return Custom(make, what)
    return draft_model(options)


def draft_model(options: argparse.Namespace) -> DraftModel:
    return DraftModel(
        options.draft_model,
        options.backend,
        engine_of(options),
        getattr(options, "translate", False),  # not of `specpair doctor`
        loading,
        hf=options.draft_hf,
        weights=options.draft_weights,
    )


def engine_of(options: argparse.Namespace) -> LoadOptions:
    return LoadOptions(**option_values(LoadOptions, options))


def told(error: Exception) -> str:
    """An error's message, with the programs' names for `api_key`."""
    names = "with --api-key, or DRAFTER_API_KEY"
    return str(error).replace("as api_key=", names) if isinstance(error, BadKey) else str(error)


def explained(error: ModelLoadError, options: argparse.Namespace) -> str:
    """An engine's message, which names the setting at fault as the user gave it."""
    return str(error) if error.setting not in ENGINE else error.called(options.settings.key(error.setting))


def drawing_options(options: argparse.Namespace) -> Options:
    """The options that every mode and `solo` have, from the flags: where the text ends, and how it is sampled."""
    drawn = (*options_of(SamplingOptions), "max_tokens", "stop")
    return Options(**{name: value for name, value in option_values(Options, options).items() if name in drawn})


def served_options(options: argparse.Namespace, **others: Any) -> Options:
    """The options of all texts of a command, from flags and `others`."""
    return Options(**option_values(Options, options) | others)


def text_options(options: argparse.Namespace) -> Options:
    """All options of a text, from the flags."""
    return served_options(options, explain=options.verbose, prediction=read_prediction(options))


def read_prompt(options: argparse.Namespace) -> str:
    """The prompt, from the flag or from standard input. Raises BadPrompt."""
    text: str | None = options.prompt
    if text is not None:
        check_encoding("prompt", text)
    elif sys.stdin is None or sys.stdin.isatty():
        raise BadPrompt("no prompt: give --prompt, or pipe one into standard input")
    else:
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")  # a byte order mark is no text: PowerShell sends one
        except UnicodeDecodeError:
            raise BadPrompt("standard input is not UTF-8 text") from None
    if not text:
        where = "with --prompt or in standard input"
        raise BadPrompt(f"the prompt is empty: give at least one character to continue, {where}")
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


@contextmanager
def on_sigterm(act: Callable[[], None]) -> Iterator[None]:
    """A context in which SIGTERM calls `act`. No effect outside the main thread, which alone may set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
