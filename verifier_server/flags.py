"""The command line of the program `verifier`: a flag for each setting, in groups."""

import argparse
from collections.abc import Sequence
from typing import Any

from pydantic.fields import FieldInfo

from command_line.parser import Parser

HOST, PORT = "127.0.0.1", 8000
_GROUPS = {
    "model": ("model", "backend", "rows", "context", "kv_type", "mmap"),
    "engine": (
        *("threads", "gpu_layers", "device", "dtype", "compile", "tensor_parallel"),
        *("batch_tokens", "prefill_chunk", "flash_attention", "deterministic"),
    ),
}
_DRAFT, _OTHERS = "server-side drafting (mode fused)", "sessions and limits"


def flags_parser(settings: Sequence[tuple[str, FieldInfo]]) -> Parser:
    """The parser of the command `verifier`. Flags that are not given parse to None."""
    parser = Parser(
        "verifier",
        usage="[FLAGS]",
        description="Serve a target model to drafters. Every setting is also an environment variable: --gpu-layers is "
        "VERIFIER_GPU_LAYERS. A flag overrides its variable.",
        examples=(
            "verifier --model llama-8b-instruct-q8_0.gguf --host 0.0.0.0 --api-key KEY",
            "verifier --model llama-8b.gguf --draft-model llama-1b.gguf --rows 8",
            "VERIFIER_BACKEND=torch verifier --model /models/Llama-3.1-8B",
        ),
    )
    server = parser.add_argument_group("server")
    server.add_argument("--host", metavar="ADDRESS", help=f"address to listen on (default: {HOST})")
    server.add_argument("--port", type=port, metavar="N", help=f"port; 0 takes a free one (default: {PORT})")
    groups = {title: parser.add_argument_group(title) for title in (*_GROUPS, _DRAFT, _OTHERS)}
    order = {name: at for at, name in enumerate(name for names in _GROUPS.values() for name in names)}
    for name, field in sorted(settings, key=lambda each: order.get(each[0], len(order))):
        default = "" if field.default is None else f" (default: {str(field.default).lower()})"
        help_ = f"{field.description}{default}".replace("%", "%%")
        groups[_group(name)].add_argument(flag(name), dest=name, metavar=_value(name, field), help=help_)
    return parser


def flag(field: str) -> str:
    """The flag of the setting `field`."""
    return "--" + field.replace("_", "-")


def port(text: str) -> int:
    """The port number in `text`, 0 (any free port) to 65535. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, which is a number from 0 to 65535")
    return int(text)


def _group(name: str) -> str:
    """The group of the help text in which a setting is listed."""
    if name.startswith("draft_"):
        return _DRAFT
    return next((title for title, names in _GROUPS.items() if name in names), _OTHERS)


def _value(name: str, field: FieldInfo) -> str:
    """The placeholder of a flag's value in the help."""
    kinds: tuple[tuple[Any, str], ...] = ((bool, "yes|no"), (int, "N"), (float, "SECONDS"))
    if name.endswith("model"):
        return "PATH"
    if name == "backend" or name == "draft_backend":
        return "NAME"
    if field.default == "auto":
        return "auto|N"
    return next((word for kind, word in kinds if type(field.default) is kind), name.rpartition("_")[2].upper())
