"""Makes the pair that the flags of a command describe, and says what it waits for."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import SecretStr

from drafter_client.display.progress import loading
from drafter_client.display.status_line import draw
from drafter_client.display.status_line import say as say_line
from drafter_client.draft_sources import Custom, DraftModel, Lookup, Source
from drafter_client.errors import BadOption, VerifierUnreachable
from drafter_client.http.outages import Outage
from drafter_client.http.retries import CHECK_PAUSE
from drafter_client.modes.memory import memory_file
from drafter_client.options import Mode
from drafter_client.pair import Pair
from drafter_client.pair_options import Observer
from drafter_client.program_options import NGRAM, is_plugged_drafter
from drafter_client.trace.writer import TraceFolder
from specpair.command_line.options import given
from specpair.command_line.start import keep_loaded_objects
from specpair.drafters.custom import plugged
from specpair.engines.load_options import LoadOptions
from specpair.grammar.of_text import prepare_grammars
from specpair.numbers import counted
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.sampling.grammar import given_grammars

_WIPE_ROW = "\r\x1b[2K"
_LINES_APART = 10.0  # seconds between lines about a wait

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

    `texts`: how many texts it generates at a time.
    `observer`: takes the events of each text, in place of a trace.
    `on_outage`: called with each outage, too.
    `log`: takes what would be shown of waits for the verifier; None: it is shown.
    `serves`: whether others ask for its texts, any of which may keep to a grammar.
    `waits`: whether to wait for a verifier that does not answer yet, as long as for one that went away.
    """
    say = say_outage(log)

    def told(outage: Outage) -> None:
        say(outage)
        if on_outage is not None:
            on_outage(outage)

    trace = None if options.profile is None else TraceFolder(options.profile, text=options.profile_text)
    source = _source(options)

    def made(notice: Callable[[str], object]) -> Pair:
        return Pair(
            options.verifier,
            source,
            api_key=api_key(options),
            branches=1 if options.lockstep or options.strategy not in DRAFTER_INVARIANT else options.branches,
            texts=texts,
            observer=observer or trace,
            memory=memory_file() if options.mode is Mode.AUTO and options.remember else None,
            corpus=options.draft_corpus,
            patience=options.patience,
            start_patience=getattr(options, "start_patience", None),  # of `drafter serve` only
            on_wait=on_wait,
            on_outage=told,
            on_prompt=say_prompt() if log is None else None,
            on_notice=notice,
        )

    with said_of_loading(log) as on_wait:
        pair = once_there(made, options.patience if waits else 0.0, log or say_notice)
    if serves or given_grammars(options):
        drafting = pair.paired.drafting
        for vocabulary in (drafting.vocabulary, *(engine.vocabulary for engine in drafting.warm)):
            prepare_grammars(vocabulary)
    keep_loaded_objects()
    return pair


def once_there(
    make: Callable[[Callable[[str], object]], T],
    patience: float,
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The result of `make`, which is repeated while no verifier answers.

    `make`: is given `say` for its notices. Those that each attempt would repeat are not said.
    `patience`: seconds to wait at most, of which `say` is told.
    `clock`: in seconds.

    Raises what `make` raises: VerifierUnreachable when the patience is over.
    """
    began, waits = clock(), False

    def notice(line: str) -> None:
        if not waits:
            say(line)

    while True:
        try:
            made = make(notice)
        except VerifierUnreachable as error:
            if clock() - began >= patience:
                raise
            notice(f"waiting for the verifier, {patience:g} s at most (--patience): {error}")
            waits = True
        else:
            waits = False
            return made
        sleep(CHECK_PAUSE)


def api_key(options: argparse.Namespace) -> str | None:
    """The verifier's key, if one is given."""
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
    """The draft model on this machine, from the flags."""
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
    """The settings of the engine on this machine, from the flags."""
    return LoadOptions(**given(LoadOptions, options))


@contextmanager
def said_of_loading(log: Callable[[str], object] | None = None) -> Iterator[Callable[[float | None], None]]:
    """A context that yields a callback for the progress of the verifier's loading, 0 to 1; None: unknown.

    On a terminal it shows one row, which is gone when the context is left; elsewhere, a line for each tenth.
    `log`: takes these lines in place of standard error.
    """
    in_place = log is None and sys.stderr.isatty()
    last = -1

    def say(progress: float | None) -> None:
        nonlocal last
        tenth = int(10 * (progress or 0.0))
        if tenth > last:
            last = tenth
            line = f"the verifier is loading its model … {10 * tenth}%"
            if in_place:
                print(f"{_WIPE_ROW}drafter: {line}", end="", file=sys.stderr, flush=True)
            else:
                (log or say_notice)(line)

    try:
        yield say
    finally:
        if in_place and last >= 0:
            print(_WIPE_ROW, end="", file=sys.stderr, flush=True)


def say_notice(line: str) -> None:
    """Say something on standard error."""
    say_line(f"drafter: {line}")


def say_prompt(clock: Callable[[], float] = time.monotonic) -> Callable[[PromptProgress], None]:
    """A callback that shows how much of a long prompt is read: in the status line, else in lines on standard error, ten
    seconds apart. On a terminal without a status line it shows nothing."""
    due = 0.0

    def say(progress: PromptProgress) -> None:
        nonlocal due
        line = f"reading the prompt … {progress.read} of {counted(progress.of, 'token')}"
        if not draw(line) and clock() >= due and not sys.stderr.isatty():
            due = clock() + _LINES_APART
            say_notice(line)

    return say


def say_outage(log: Callable[[str], object] | None = None) -> Callable[[Outage], None]:
    """A callback that shows a wait for the verifier in the status line below a text. Where there is none, it prints a
    line on standard error when an outage begins, and one when it is over.

    `log`: takes these lines in place of that.
    """
    said = False

    def say(outage: Outage) -> None:
        nonlocal said
        progress = "" if outage.progress is None else f", {outage.progress:.0%}"
        waited = f"{outage.seconds:.0f} s of {outage.patience:.0f} (--patience)"
        line = f"waiting for the verifier ({outage.why}{progress}) … {waited}"
        if outage.over:
            line = f"the verifier answers again after {outage.seconds:.0f} s"
        if not draw(line) and said == outage.over:
            said = not said
            (log or say_notice)(line)

    return say
