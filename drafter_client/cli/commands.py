"""Command lines of the drafter: which flags of a command go together."""

import argparse
from collections.abc import Sequence

from drafter_client.cli.flags import parsed, print_if_asked
from drafter_client.cli.parsers import chat_parser, compare_parser, drafter_parser, serve_parser, solo_parser
from drafter_client.options import Mode
from drafter_client.program_options import ENGINE, NGRAM, is_plugged_drafter
from specpair.command_line.parser import Parser, flag
from specpair.corpus.draft_corpus import BadCorpus, checked
from specpair.engines.errors import ModelLoadError
from specpair.http_service.keys.key_file import complaint
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.grammar import given_grammars

_OF_A_MODEL = ("draft_model", "draft_hf", "draft_weights", *ENGINE, "translate")
_HERE, _THERE = ("model", "hf", "backend", *ENGINE), ("verifier", "api_key", "patience")
_OF_DRAFTING = (*_OF_A_MODEL, "draft_corpus", "lookup", "backend", "branches", "lockstep")
_OF_MANY = ("concurrency", "output")
_PREDICTION = ("prediction", "prediction_file")
_LEAVE = ", leave one of the two out"


def drafter_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client`. Exits with status 2 for flags that do not go together."""
    parser = drafter_parser()
    options = _of_text(parser, arguments)
    if options.prompt_file is None:
        _refuse(parser, options, _OF_MANY, "is for many prompts, give them with --prompt-file")
    else:
        _refuse(parser, options, _PREDICTION, "is of one text: give it with --prompt, or in the lines of a .jsonl file")
        _refuse(parser, options, ["baseline"], "is measured beside one text, compare many with 'drafter compare'")
        if options.output is not None:
            _refuse(parser, options, ["json"], f"--output writes the same lines{_LEAVE}")
        _refuse(parser, options, ["verbose"], "shows the decisions on one text, give it with --prompt")
    print_if_asked(parser, options)
    return options


def chat_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client chat`. Exits with status 2 for flags that do not go together."""
    parser = chat_parser()
    options = _of_text(parser, arguments)
    print_if_asked(parser, options)
    return options


def _of_text(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """The flags of a command that writes texts in a mode and by a strategy, checked as far as those go."""
    options = parsed(parser, arguments)
    options.mode, options.strategy = Mode(options.mode), Strategy(options.strategy)
    _check_strategy(parser, options)
    _check_grammar(parser, options)
    _check_mode(parser, options)
    _check_profile(parser, options)
    return options


def compare_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client compare`. Exits with status 2 for flags that do not go together."""
    parser = compare_parser()
    options = parsed(parser, arguments)
    _check_lookup(parser, options)
    _check_corpus(parser, options)
    _check_grammar(parser, options)
    _check_profile(parser, options)
    if options.png is not None and options.no_png:
        parser.error("--png: --no-png says the contrary, leave one of the two out")
    options.mode, options.strategy = Mode.AUTO, Strategy.COUPLED
    print_if_asked(parser, options)
    return options


def serve_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client serve`. Exits with status 2 for flags that do not go together."""
    parser = serve_parser()
    options = parsed(parser, arguments)
    options.mode, options.strategy = Mode(options.mode), Strategy.COUPLED
    options.profile, options.profile_text = None, False
    _check_mode(parser, options)
    _check_access(parser, options)
    print_if_asked(parser, options)
    _check_file(parser, options)
    return options


def _check_mode(parser: Parser, options: argparse.Namespace) -> None:
    mode = options.settings.assignment("mode")
    if options.mode is not Mode.AUTO:
        _refuse(parser, options, ["remember"], f"only --mode auto remembers, leave it out with {mode}")
    if options.mode in (Mode.FUSED, Mode.TARGET):
        _refuse(parser, options, _OF_DRAFTING, f"with {mode} nothing drafts here{_LEAVE}")
        if options.mode is Mode.TARGET:
            _refuse(parser, options, ("draft_n", *_PREDICTION), f"with {mode} nothing drafts{_LEAVE}")
    else:
        _check_lookup(parser, options)
        _check_corpus(parser, options)


def _check_corpus(parser: Parser, options: argparse.Namespace) -> None:
    """At once, since a pair waits for its verifier first."""
    try:
        checked(options.draft_corpus)
    except BadCorpus as error:
        parser.error(f"{options.settings.key('draft_corpus')}: {error}")


def _check_profile(parser: Parser, options: argparse.Namespace) -> None:
    if options.profile is None:
        _refuse(parser, options, ["profile_text"], "is recorded in the folder that --profile names, which is missing")


def _check_access(parser: Parser, options: argparse.Namespace) -> None:
    key, settings = options.serve_key, options.settings
    wrong = None if key is None else complaint(key.get_secret_value())
    if wrong is not None:
        parser.error(f"{settings.key('serve_key')}: {wrong}")
    for name in ("serve_key", "keys_file"):
        if options.insecure and getattr(options, name) is not None:
            parser.error(
                f"{settings.key('insecure')}: no key is needed then, but {settings.key(name)} gives one{_LEAVE}"
            )
    if options.ssl_keyfile is not None and options.ssl_certfile is None:
        parser.error(f"{settings.key('ssl_keyfile')}: belongs to a certificate, give that with --ssl-certfile")
    for name in ("ssl_certfile", "ssl_keyfile"):
        path = getattr(options, name)
        if path is not None and not path.is_file():
            parser.error(f"{settings.key(name)}: no such file: {path}")


def _check_file(parser: Parser, options: argparse.Namespace) -> None:
    """A service is to end for a wrong path at once: it would wait for its verifier first."""
    path = options.draft_model
    if options.backend == "llama_cpp" and not path.is_file():
        parser.error(f"{options.settings.key('draft_model')}: no such file: {path}")


def _check_strategy(parser: Parser, options: argparse.Namespace) -> None:
    strategy = options.settings.assignment("strategy")
    if options.strategy is not Strategy.THRESHOLD:
        _refuse(parser, options, ["threshold"], f"{strategy} has none{_LEAVE}")
    elif options.threshold is None:
        parser.error(f"{strategy}: give the probability above which a draft token is accepted, with --threshold")
    if options.strategy is Strategy.GREEDY:
        _refuse(parser, options, _PREDICTION, f"{strategy} accepts no draft tokens{_LEAVE}")
    if options.strategy.draws:
        _refuse(parser, options, ["translate"], f"translated drafts have no distribution, which {strategy} needs")


def _check_grammar(parser: Parser, options: argparse.Namespace) -> None:
    given = [flag(name) for name in given_grammars(options)]
    if len(given) > 1:
        parser.error(f"{given[1]}: give either {given[0]} or {given[1]}")


def _check_lookup(parser: Parser, options: argparse.Namespace) -> None:
    if options.backend == NGRAM:
        backend = options.settings.assignment("backend")
        _refuse(parser, options, (*_OF_A_MODEL, "lookup"), f"{backend} drafts without a model{_LEAVE}")
    elif is_plugged_drafter(options.backend):
        backend = options.settings.assignment("backend")
        _refuse(parser, options, _OF_A_MODEL, f"{backend} drafts without a model{_LEAVE}")
    elif options.draft_hf is not None:
        settings = options.settings
        # A flag is meant for this command, a variable or the file for all.
        of_the_hub = settings.lasting("draft_hf") and not settings.lasting("draft_model")
        one, other = ("draft_hf", "draft_model") if of_the_hub else ("draft_model", "draft_hf")
        if options.draft_model != parser.get_default("draft_model"):
            _refuse(parser, options, [one], f"{settings.assignment(other)} names a model, too{_LEAVE}")


def explained(error: ModelLoadError, options: argparse.Namespace) -> str:
    """An engine's message, in which the setting at fault has the name by which the user gave it."""
    return str(error) if error.setting not in ENGINE else error.called(options.settings.key(error.setting))


def _refuse(parser: Parser, options: argparse.Namespace, which: Sequence[str], reason: str) -> None:
    """End with an error that gives `reason` if one of the flags `which` was given another value than its default. The
    command may lack some of them.

    A value from a variable or from the file is left out instead: it was not meant for this one command.
    """
    for name in filter(options.__contains__, which):
        default = parser.get_default(name)
        if getattr(options, name) == default:
            continue
        if not options.settings.lasting(name):
            parser.error(f"{options.settings.key(name)}: {reason}")
        options.settings.leave_out(name)
        setattr(options, name, default)


def solo_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client solo`. Exits with status 2 for flags that do not go together."""
    parser = solo_parser()
    options = parsed(parser, arguments)
    there = options.which == "server"
    where = "the model runs on the verifier" if there else "the model runs here, 'solo server' asks a verifier"
    _refuse(parser, options, _HERE if there else _THERE, f"with 'solo {options.which}' {where}")
    if options.model is not None and options.hf is not None:
        parser.error(f"--hf: --model names a model, too{_LEAVE}")
    for name in ("model", "hf"):
        if getattr(options, name) is not None and options.which == "draft":
            parser.error(f"{flag(name)}: 'solo draft' is the shipped draft model{_LEAVE}")
    _check_grammar(parser, options)
    print_if_asked(parser, options)
    return options
