"""Flags of the drafter that several commands share. `commands` says which command has which."""

import argparse

from backends.base import LoadOptions
from backends.registry import NAMES, SHOWN, TEST_ENGINES
from backends.shipped_models import DEFAULT_DRAFT
from command_line.options.flags import add_options
from command_line.parser import KEY, OneOf, Switch
from drafter_client.cli.flag_values import between, hosts, origins, path, whole
from drafter_client.http.retries import PATIENCE
from drafter_client.options import Options
from drafter_client.pair import BRANCHES, VERIFIER
from specpair import plugins
from specpair.options.option import settings_of

NGRAM = "ngram"  # a backend of the drafter only
# A branch takes a slot of the engine, KV cells and a place in each pass, and the tenth likeliest continuation is seldom
# right. An engine's own bound would report slots, not branches.
_MOST_BRANCHES = 64
_MOST_TEXTS = 64  # texts at a time: each has its own threads and connections


def verifier_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("verifier")
    group.add_argument("--verifier", metavar="URL", default=VERIFIER, help="its address (default: %(default)s)")
    group.add_argument("--api-key", metavar=KEY, help="its key, if it wants one (or DRAFTER_API_KEY)")
    group.add_argument(
        "--patience",
        metavar="SECONDS",
        type=between(0.0, 1e6),
        default=PATIENCE,
        help="how long to wait for a verifier that went away; the text continues when it is back "
        "(default: %(default)g)",
    )


def service_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("service")
    group.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    group.add_argument(
        "--port",
        metavar="N",
        type=whole(0, 65535),
        default=8080,
        help="port; 0: a free one (default: %(default)s)",
    )
    group.add_argument(
        "--texts",
        metavar="N",
        type=whole(1, _MOST_TEXTS),
        default=4,
        help="texts at a time; each has rows of the draft model of its own (default: %(default)s)",
    )
    group.add_argument(
        "--start-patience",
        metavar="SECONDS",
        type=between(0.0, 1e6),
        default=20.0,
        help="how long a text that has not begun waits for a verifier that went away; then it gets a 503 "
        "(default: %(default)g)",
    )
    group.add_argument(
        "--queue",
        metavar="N",
        type=whole(0),
        default=16,
        help="texts that may wait; beyond, 503 with Retry-After (default: %(default)s)",
    )
    group.add_argument(
        "--drain",
        metavar="SECONDS",
        type=between(0.0, 1e6),
        default=20.0,
        help="how long texts under way may take on after SIGTERM, while new ones are refused (default: %(default)g)",
    )
    group.add_argument(
        "--log-format", choices=OneOf(["text", "json"]), default="text", help="log lines (default: %(default)s)"
    )
    group.add_argument("--access-log", action=Switch, default=False, help="log a line for each request (default: no)")


def access_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say who may use the service."""
    group = parser.add_argument_group("who may use it")
    group.add_argument("--serve-key", metavar=KEY, help="key that programs must send (or DRAFTER_SERVE_KEY)")
    group.add_argument(
        "--keys-file",
        metavar="FILE",
        type=path,
        help="file with the hashes of several keys; 'drafter key new NAME' adds one",
    )
    group.add_argument(
        "--insecure",
        action=Switch,
        default=False,
        help="without a key, serve every address, not only loopback and private networks (default: no)",
    )
    group.add_argument(
        "--allowed-hosts",
        metavar="NAMES",
        type=hosts,
        default="",
        help="names, separated by commas, that it answers to without a key, beside this machine's own; *: all "
        "(default: none)",
    )
    group.add_argument(
        "--cors-origins",
        metavar="URLS",
        type=origins,
        default="",
        help="origins whose web pages, apps or extensions may use it, separated by commas; *: all (default: none)",
    )
    group.add_argument("--ssl-certfile", metavar="FILE", type=path, help="certificate, to serve HTTPS")
    group.add_argument("--ssl-keyfile", metavar="FILE", type=path, help="its private key, unless it is in that file")


def memory_flag(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--remember",
        action=Switch,
        default=True,
        help="auto: read and write the measurements of earlier runs (default: yes)",
    )


def draft_flags(parser: argparse.ArgumentParser, *, modes: bool = False) -> argparse._ArgumentGroup:
    """Flags of drafting here, and of the draft model's engine. `modes`: include the choice of the mode."""
    draft = parser.add_argument_group("drafting")
    if modes:
        add_options(draft, Options, ["mode"])
        memory_flag(draft)
    draft.add_argument(
        "--draft-model", type=path, metavar="PATH", default=DEFAULT_DRAFT, help="model file (default: the small one)"
    )
    if modes:
        add_options(draft, Options, ["draft_n"])
    draft.add_argument(
        "--branches",
        metavar="N",
        type=whole(1, _MOST_BRANCHES),
        default=BRANCHES,
        help="continuations followed at once, to be ready for recovered tokens (default: %(default)s)",
    )
    draft.add_argument(
        "--translate",
        action=Switch,
        default=False,
        help="where the draft model has another vocabulary, draft through text (default: no)",
    )
    add_options(draft, Options, ["lookup", "lockstep"])
    engine = parser.add_argument_group("engine of the draft model")
    engine_flags(
        engine,
        (*SHOWN, NGRAM),
        "engine, or one of a plug-in; ngram: no model, draft by lookup in the text (default: %(default)s)",
        (plugins.BACKENDS, plugins.DRAFTERS),
    )
    return draft


def is_plugged_drafter(backend: object) -> bool:
    """Whether a value of --backend names a drafter of another distribution, which runs no engine."""
    if backend in (*NAMES, NGRAM) or backend in plugins.names(plugins.BACKENDS):
        return False
    return backend in plugins.names(plugins.DRAFTERS)


def engine_flags(
    parser: argparse._ArgumentGroup,
    names: tuple[str, ...],
    meaning: str,
    groups: tuple[str, ...] = (plugins.BACKENDS,),
) -> None:
    """`groups`: the plug-ins that --backend takes, too."""
    parser.add_argument(
        "--backend",
        choices=OneOf(names, TEST_ENGINES, lambda: [name for group in groups for name in plugins.names(group)]),
        default="llama_cpp",
        help=meaning,
    )
    options = [each.name for each in settings_of(LoadOptions, "drafter").values()]
    add_options(parser, LoadOptions, options, context_length={"ge": 8})


def text_flags(parser: argparse.ArgumentParser, *, many: bool = False) -> None:
    """Flags of the text to write. `many`: include those of drafted and of many texts."""
    text = parser.add_argument_group("text")
    one_or_many = text.add_mutually_exclusive_group()
    one_or_many.add_argument("--prompt", metavar="TEXT", help="text to continue; without it, standard input is read")
    if many:
        one_or_many.add_argument(
            "--prompt-file", type=path, metavar="FILE", help="many prompts: one a line, or JSON Lines (*.jsonl)"
        )
    add_options(text, Options)
    chat_flags(text)
    if many:
        prediction = text.add_mutually_exclusive_group()
        prediction.add_argument(
            "--prediction", metavar="TEXT", help="what the text is expected to be: also draft from this, where it fits"
        )
        prediction.add_argument(
            "--prediction-file", type=path, metavar="FILE", help="the same from a file, for example one to be edited"
        )
        group = parser.add_argument_group("many prompts")
        texts = whole(1, _MOST_TEXTS)
        group.add_argument("--concurrency", metavar="N", type=texts, default=1, help="texts at a time (default: 1)")
        group.add_argument(
            "--output", type=path, metavar="FILE", help="write results there, as JSON Lines; the same command continues"
        )


def chat_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--chat", action=Switch, default=False, help="apply the model's chat template to the prompt (default: no)"
    )
    group.add_argument("--system", metavar="TEXT", help="system message, with --chat")


def option_flags(parser: argparse.ArgumentParser, *titles: str) -> None:
    """Groups of the flags of a text's options."""
    for title in titles:
        add_options(parser.add_argument_group(title), Options)


def output_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("output")
    group.add_argument("--stats", action=Switch, help="show all metrics at the end, not only the main ones")
    group.add_argument("--json", action=Switch, help="one JSON object a text on standard output, nothing else there")
    group.add_argument(
        "--stream", action=Switch, default=True, help="print the text while it comes, not at the end (default: yes)"
    )
    return group


def profile_flag(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--profile", type=path, metavar="DIR", help="record the run in this folder; see 'report'")
