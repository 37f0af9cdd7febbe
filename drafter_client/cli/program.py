"""The program `drafter`: chooses the command, and turns errors into messages and exit statuses."""

import io
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial

from drafter_client.cli import commands, steps
from drafter_client.cli.batch import run_many
from drafter_client.cli.compare import run_compare
from drafter_client.cli.flags import keys_file
from drafter_client.cli.solo import run_solo_command
from drafter_client.display.readout import Readout
from drafter_client.errors import DrafterError
from drafter_client.options import Mode
from drafter_client.statistics import Baseline
from specpair import programs
from specpair.command_line import start
from specpair.command_line.parser import Parsers
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.http_service.keys import key_command
from specpair.http_service.sharing import commands as sharing
from specpair.protocol.errors import SpecPairError
from specpair.protocol.terminal_text import several_lines
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT

TERMINATED = 143  # exit status of a program ended by SIGTERM
SWITCH_INTERVAL = 0.0005  # seconds; at the default of 5 ms a computing thread delays responses by that much


def run_draft(options: Namespace) -> int:
    """Generate the text and show it with its metrics. Returns the exit status."""
    steps.check_system(options)
    prompt = steps.read_prompt(options)
    chosen = steps.text_options(options)
    with steps.pair_of(options) as pair:
        steps.check_draft_n(pair, options)
        ids = steps.prompt_ids(pair, prompt, options.chat, options.system)
        generation = pair.generate(ids, chosen.cold() if options.baseline else chosen)

        piece = generation.piece if options.verbose else None
        readout = Readout(as_json=options.json, stream=options.stream, stats=options.stats, piece=piece)

        def measure() -> None:
            if options.baseline:
                readout.busy("measuring the target alone")
                alone = pair.generate(ids, generation.options.in_mode(Mode.TARGET).cold()).read().stats
                same = options.strategy in DRAFTER_INVARIANT
                generation.stats.baseline = Baseline.of(alone, generation.stats.token_ids if same else None)

        return steps.show(generation, readout, measure)


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns the exit status: 0 done, 1 an error was reported, 2 bad flags, 130 interrupted, 143 ended
    by SIGTERM."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.setswitchinterval(SWITCH_INTERVAL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that its encoding lacks are replaced
            stream.reconfigure(errors="replace")
    terminated = False

    def terminate() -> None:  # as Ctrl-C does: sessions are released, and the text so far is shown
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    try:
        start.catch_interrupts()
        with steps.on_sigterm(terminate):
            try:
                status = _run(arguments)
            except KeyboardInterrupt:
                print("\ndrafter: interrupted", file=sys.stderr)
                status = steps.INTERRUPTED
        return TERMINATED if terminated and status == steps.INTERRUPTED else status
    except (SpecPairError, DrafterError, BackendError) as error:
        print(f"drafter: {several_lines(steps.told(error))}", file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> int:
    rest = arguments[1:]
    match "".join(arguments[:1]):
        case "chat":
            from drafter_client.cli.chat import run_chat  # with an editor, which the others do without

            return _run_with_model(run_chat, commands.chat_options(rest))
        case "serve":
            from drafter_client.cli.serve import run_serve  # with a web framework, which the others do without

            return _run_with_model(run_serve, commands.serve_options(rest))
        case "solo":
            return _run_with_model(run_solo_command, commands.solo_options(rest))
        case "compare":
            return _run_with_model(run_compare, commands.compare_options(rest))
        case "tune":
            from drafter_client.cli.tune import (
                run_tune,
                tune_options,
            )  # with the catalogue, which the others do without

            return _run_with_model(run_tune, tune_options(rest))
        case "models":
            from drafter_client.cli.models import run_models  # with llama.cpp, which the others may do without

            return run_models(rest)
        case "corpus":
            from drafter_client.cli.corpus import run_corpus

            return run_corpus(rest)
        case "completion":
            from specpair.command_line import completion

            return completion.run("drafter", rest, parsers)
        case "join" | "hosts" | "leave" as which:
            from drafter_client.cli.hosts import run_hosts

            return run_hosts(which, rest)
        case "invite" | "unshare" | "cert" as which:
            return sharing.run("drafter", which, rest)
        case "key":
            return key_command.run("drafter", rest, keys_file)
    if (command := programs.lab_command("drafter", arguments)) is not None:
        return command.run(rest)
    options = commands.drafter_options(arguments)
    return _run_with_model(run_draft if options.prompt_file is None else run_many, options)


def parsers() -> Parsers:
    """The parsers of all commands, by command, for completions and the documentation: those of the lab
    among them if it is installed."""
    from drafter_client.cli.corpus import corpus_parser
    from drafter_client.cli.hosts import COMMANDS, hosts_parser
    from drafter_client.cli.models import models_parser
    from drafter_client.cli.tune import tune_parser
    from specpair.command_line import completion

    return {
        "drafter": commands.drafter_parser,
        "drafter chat": commands.chat_parser,
        "drafter serve": commands.serve_parser,
        "drafter solo": commands.solo_parser,
        "drafter compare": commands.compare_parser,
        "drafter tune": tune_parser,
        "drafter models": models_parser,
        "drafter corpus": corpus_parser,
        **{f"drafter {each}": partial(hosts_parser, each) for each in COMMANDS},
        **{f"drafter {each}": partial(sharing.parser, "drafter", each) for each in sharing.COMMANDS},
        "drafter key": lambda: key_command.parser("drafter"),
        "drafter completion": lambda: completion.parser("drafter"),
        **programs.lab_parsers("drafter"),
    }


def _run_with_model(run: Callable[[Namespace], int], options: Namespace) -> int:
    try:
        return run(options)
    except ModelLoadError as error:
        raise ModelLoadError(steps.explained(error, options)) from error
