"""The flags of the command `verifier`, and of others that take its settings."""

from collections.abc import Mapping
from typing import NamedTuple

from specpair.command_line.options import add_option
from specpair.command_line.parser import Parser
from specpair.http_service.options import ACCESS, ROUTER
from specpair.options.option import Option
from verifier_server.options import ADDRESS, DRAFT, ENGINE, LIMITS, MODEL


class CommandHelp(NamedTuple):
    """The first and last lines of the help of a command that takes all settings."""

    prog: str
    usage: str
    description: str
    examples: tuple[str, ...]
    commands: tuple[str, ...] = ()


SERVE = CommandHelp(
    "verifier",
    "[FLAGS]\n"
    "compile [FLAGS]   (compile before serving: 'verifier compile --help')\n"
    "selftest [FLAGS]   (test the engine: 'verifier selftest --help')\n"
    "models ACTION   (list and download models: 'verifier models --help')\n"
    "key new | list | revoke   (API keys: 'verifier key --help')\n"
    "invite NAME | unshare | cert renew   (with --share: other machines)\n"
    "completion SHELL   (completions for a shell)",
    "Serve a target model to drafters. Every setting is also an environment variable and a key in "
    "specpair.toml: --gpu-layers is VERIFIER_GPU_LAYERS, and gpu_layers in the table [verifier]. "
    "A flag overrides the variable, and the variable overrides the file.",
    (
        "verifier --model llama-8b-instruct-q8_0.gguf --share",
        "verifier --model llama-8b.gguf --draft-model llama-1b.gguf --slots 8",
        "VERIFIER_BACKEND=torch verifier --model /models/Llama-3.1-8B",
    ),
    ("compile", "selftest", "models", "key", "invite", "unshare", "cert", "completion"),
)


def flags_parser(options: Mapping[str, Option], command: CommandHelp = SERVE) -> Parser:
    """The parser of the command `verifier`, or of another that takes its settings, with the flags of `options`."""
    parser = Parser(**command._asdict())
    parser.add_config_flags()
    server = parser.add_argument_group("server")
    groups = {title: parser.add_argument_group(title) for title in (MODEL, ACCESS, ENGINE, DRAFT, LIMITS, ROUTER)}
    for option in (*ADDRESS.values(), *options.values()):
        add_option(groups.get(option.about.group, server), option)
    return parser
