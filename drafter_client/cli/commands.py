"""The commands of `drafter`: the flags of each, its help, and which flags go together."""

import argparse
from collections.abc import Sequence

from drafter_client.cli import flags
from drafter_client.cli.flags import parsed, print_if_asked
from drafter_client.options import Mode, Options
from drafter_client.program_options import ENGINE, NGRAM, ProgramOptions, engines, is_plugged_drafter
from models.hub.names import HubOptions
from specpair.command_line.options import add_options, flag_reader
from specpair.command_line.parser import OneOf, Parser, Switch, flag
from specpair.corpus.draft_corpus import BadCorpus, checked
from specpair.http_service.keys.key_file import complaint
from specpair.http_service.options import ACCESS, ROUTER, SERVICE
from specpair.options.option import options_of
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.grammar import given_grammars

COMMANDS = (
    *("chat", "serve", "solo", "compare", "tune", "bench", "report", "models", "corpus", "join", "hosts", "leave"),
    *("key", "invite", "unshare", "cert", "completion"),
)
SOLO = ("target", "draft", "server")  # the models that 'drafter solo' can run
_ANSWER = 1024  # the most tokens of an answer in a chat, unless told
_OF_A_MODEL = ("draft_model", "draft_hf", "draft_weights", *ENGINE, "translate")
_HERE, _THERE = ("model", "hf", "backend", *ENGINE), ("verifier", "api_key", "patience")
_OF_DRAFTING = (*_OF_A_MODEL, "draft_corpus", "lookup", "backend", "branches", "policy", "lockstep")
_OF_MANY = ("concurrency", "output")
_PREDICTION = ("prediction", "prediction_file")
_LEAVE = ", leave one of the two out"


def drafter_parser() -> Parser:
    parser = Parser(
        "drafter",
        usage="[FLAGS] --prompt TEXT\n[FLAGS] < FILE\nchat | serve | solo | compare | tune | bench | report DIR\n"
        "models | corpus | join LINK | hosts | leave HOST\nkey | invite | completion   (each has --help)",
        description="Write a text with a verifier: a small draft model on this machine proposes tokens, and the "
        "verifier's target model accepts or rejects them. Commands: 'chat' talks with the target, 'serve' offers "
        "it to programs as OpenAI's and Anthropic's API, 'solo' runs one model alone, 'compare' measures every "
        "mode, 'tune' finds the draft model that helps most, 'bench' measures endpoints side by side, 'report' "
        "shows what --profile recorded, 'models' downloads and compares models, 'corpus' indexes your files, "
        "'join' uses a host by the link that it printed, 'key' makes API keys for 'serve', 'completion' prints "
        "completions for a shell. Most flags can also be variables, or keys in specpair.toml: --verifier is "
        "DRAFTER_VERIFIER, and verifier in the table [drafter].",
        examples=(
            'drafter --verifier http://bigbox:8000 --prompt "def main():" --stats',
            'drafter --draft-model llama-1b.gguf --chat --prompt "Why is the sky blue?"',
            "drafter --prompt-file prompts.txt --concurrency 4 --output results.jsonl",
        ),
        commands=COMMANDS,
    )
    parser.add_config_flags()
    flags.text_flags(parser, many=True)
    flags.lasting_flags(parser, "verifier")
    flags.draft_flags(parser, modes=True)
    flags.option_flags(parser, "sampling", "grammar", "acceptance")
    output = flags.output_flags(parser)
    output.add_argument(
        "--baseline", action=Switch, help="also write the text with the target alone, and show the speed-up"
    )
    output.add_argument("--verbose", action=Switch, help="show the decision on each token")
    flags.profile_flag(output)
    return parser


def chat_parser() -> Parser:
    parser = Parser(
        "drafter chat",
        usage="[FLAGS]",
        description="Talk with the verifier's target model in the terminal, while a draft model on this machine "
        "makes it faster. In the chat, /help lists the commands. Without a terminal, each line of "
        "standard input is a turn.",
        examples=(
            "drafter chat --verifier http://bigbox:8000 --draft-model llama-1b.gguf",
            'drafter chat --system "Be brief." --temperature 0.7 --sources',
            "drafter chat --mode target --max-tokens 200 --no-markdown",
        ),
    )
    parser.add_config_flags()
    text = parser.add_argument_group("text")
    add_options(text, Options, ["max_tokens", "stop", "cache_salt"], max_tokens={"default": _ANSWER})
    text.add_argument("--system", metavar="TEXT", help="system message")
    flags.lasting_flags(parser, "verifier")
    flags.draft_flags(parser, modes=True)
    flags.option_flags(parser, "sampling", "grammar", "acceptance")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--markdown", action=Switch, default=True, help="show answers as Markdown, in a terminal (default: yes)"
    )
    output.add_argument("--sources", action=Switch, help="colour each token by its source, and show no Markdown")
    flags.profile_flag(output)
    return parser


def serve_parser() -> Parser:
    parser = Parser(
        "drafter serve",
        usage="[FLAGS]",
        description="Serve OpenAI's and Anthropic's API on this machine, and a chat page. Programs get the "
        "target's texts, while a draft model on this machine makes them faster.",
        examples=(
            "drafter serve --verifier http://bigbox:8000 --draft-model llama-1b.gguf",
            "drafter serve --mode auto --port 9000 --texts 2",
            'curl http://127.0.0.1:8080/v1/completions -d \'{"prompt": "def main():"}\'',
        ),
    )
    parser.add_config_flags()
    flags.lasting_flags(parser, SERVICE, ROUTER, ACCESS, "verifier")
    flags.draft_flags(parser, modes=True)
    return parser


def solo_parser() -> Parser:
    parser = Parser(
        "drafter solo",
        usage="[target | draft | server] [FLAGS] --prompt TEXT",
        description="Run one model alone, token by token, with the time of each token.",
        examples=(
            'drafter solo --prompt "import os" --max-tokens 20',
            'drafter solo -hf Qwen/Qwen3-0.6B-GGUF --threads 4 --prompt "import os"',
            'drafter solo server --verifier http://bigbox:8000 --prompt "import os"',
        ),
    )
    parser.add_config_flags()
    model = parser.add_argument_group("model")
    model.add_argument(
        "which",
        nargs="?",
        choices=OneOf(SOLO),
        default=SOLO[0],
        help="target, draft: the model that ships, on this machine; server: the verifier's target "
        "(default: %(default)s)",
    )
    model.add_argument("--model", type=flags.path, metavar="PATH", help="another model, on this machine")
    named = options_of(HubOptions)["hf"]  # here of one run, as --model is
    spelled, about = [flag(named.setting), named.about.short], named.about
    model.add_argument(*spelled, type=flag_reader(named), metavar=about.placeholder, help=about.words)
    flags.text_flags(parser)
    flags.lasting_flags(parser, "verifier")
    backend = {"words": "engine", "choices": engines(drafters=False)}
    flags.engine_flags(parser.add_argument_group("engine"), backend=backend)
    flags.option_flags(parser, "sampling", "grammar")
    flags.output_flags(parser)
    return parser


def compare_parser() -> Parser:
    parser = Parser(
        "drafter compare",
        usage="[FLAGS]",
        description="Write the same texts in every available mode, in turn, and say which mode is the fastest here.",
        examples=(
            "drafter compare --verifier http://bigbox:8000",
            "drafter compare --draft-model llama-1b.gguf --lengths 2,4,8 --runs 1",
            "drafter compare --prompt-file code.txt --prompt-file chat.jsonl --json",
        ),
    )
    parser.add_config_flags()
    texts = parser.add_argument_group("texts")
    texts.add_argument(
        "--prompt-file",
        type=flags.path,
        metavar="FILE",
        action="append",
        help="file with prompts, one per line or JSON Lines; give the flag once for each kind of text "
        "(default: the two files that ship)",
    )
    texts.add_argument(
        "--runs", metavar="N", type=flags.whole(1, 1000), default=3, help="how often each text is written (default: 3)"
    )
    add_options(texts, Options, ["max_tokens", "stop"], max_tokens={"default": 96})
    flags.chat_flags(texts)
    flags.lasting_flags(parser, "verifier")
    drafting = flags.draft_flags(parser)
    add_options(drafting, ProgramOptions, ["remember"])
    drafting.add_argument(
        "--lengths",
        type=flags.lengths,
        default=flags.lengths("1-8"),
        metavar="LIST",
        help="fixed draft lengths to try besides the automatic one, for example 1,2,4 or 1-8 (default: 1-8)",
    )
    flags.option_flags(parser, "sampling", "grammar")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", action=Switch, help="print one JSON object on standard output, and nothing else there"
    )
    flags.profile_flag(output)
    return parser


def drafter_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `drafter`. Exits with status 2 for flags that do not go together."""
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
    return print_if_asked(parser, options)


def chat_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = chat_parser()
    return print_if_asked(parser, _of_text(parser, arguments))


def compare_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = compare_parser()
    options = parsed(parser, arguments)
    options.mode, options.strategy = Mode.AUTO, Strategy.COUPLED
    _check_drafting(parser, options)
    _check_grammar(parser, options)
    _check_profile(parser, options)
    return print_if_asked(parser, options)


def serve_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = serve_parser()
    options = parsed(parser, arguments)
    options.mode, options.strategy = Mode(options.mode), Strategy.COUPLED
    options.profile, options.profile_text = None, False
    _check_mode(parser, options)
    _check_access(parser, options)
    print_if_asked(parser, options)
    # At once: the service would wait for its verifier first.
    if options.backend == "llama_cpp" and not options.draft_model.is_file():
        parser.error(f"{options.settings.key('draft_model')}: no such file: {options.draft_model}")
    return options


def solo_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = solo_parser()
    options = parsed(parser, arguments)
    there = options.which == "server"
    where = "the model runs on the verifier" if there else "the model runs here, 'solo server' asks a verifier"
    _refuse(parser, options, _HERE if there else _THERE, f"with 'solo {options.which}' {where}")
    if options.which == "draft":
        _refuse(parser, options, ("model", "hf"), f"'solo draft' is the shipped draft model{_LEAVE}")
    if options.model is not None and options.hf is not None:
        parser.error(f"--hf: --model names a model, too{_LEAVE}")
    _check_grammar(parser, options)
    return print_if_asked(parser, options)


def _of_text(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of a command that generates texts, and check those of mode and strategy."""
    options = parsed(parser, arguments)
    options.mode, options.strategy = Mode(options.mode), Strategy(options.strategy)
    _check_strategy(parser, options)
    _check_grammar(parser, options)
    _check_mode(parser, options)
    _check_profile(parser, options)
    return options


def _check_mode(parser: Parser, options: argparse.Namespace) -> None:
    mode = options.settings.assignment("mode")
    if options.mode is Mode.TARGET:
        _refuse(parser, options, ("draft_n", *_PREDICTION), f"with {mode} nothing drafts{_LEAVE}")
    if options.mode in (Mode.FUSED, Mode.TARGET):
        _refuse(parser, options, _OF_DRAFTING, f"with {mode} nothing drafts here{_LEAVE}")
    else:
        _check_drafting(parser, options)


def _check_drafting(parser: Parser, options: argparse.Namespace) -> None:
    settings, backend = options.settings, options.settings.assignment("backend")
    if options.backend == NGRAM or is_plugged_drafter(options.backend):
        without = (*_OF_A_MODEL, "lookup") if options.backend == NGRAM else _OF_A_MODEL
        _refuse(parser, options, without, f"{backend} drafts without a model{_LEAVE}")
    elif options.draft_hf is not None and options.draft_model != parser.get_default("draft_model"):
        # A flag is meant for this command, a variable or the file for all.
        of_the_hub = settings.lasting("draft_hf") and not settings.lasting("draft_model")
        one, other = ("draft_hf", "draft_model") if of_the_hub else ("draft_model", "draft_hf")
        _refuse(parser, options, [one], f"{settings.assignment(other)} names a model, too{_LEAVE}")
    try:
        checked(options.draft_corpus)  # at once, since a pair waits for its verifier first
    except BadCorpus as error:
        parser.error(f"{settings.key('draft_corpus')}: {error}")


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


def _refuse(parser: Parser, options: argparse.Namespace, which: Sequence[str], reason: str) -> None:
    """End with the error `reason` if one of the flags `which` was given another value than its default. The
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
