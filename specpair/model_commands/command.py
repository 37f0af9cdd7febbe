"""The command `models` of both ends: lists, fetches, removes, shows and compares models by name."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from specpair.command_line.parser import OneOf, Parser
from specpair.extras import MissingExtra
from specpair.hub.catalogue import drafters_for
from specpair.hub.download import fetch_model
from specpair.hub.errors import BadHead, HubError
from specpair.hub.names import parse_name
from specpair.hub.repository import Hub
from specpair.model_commands.described import Described
from specpair.model_commands.finding import Cached, described, in_cache
from specpair.model_commands.pairing import judge
from specpair.protocol.terminal_text import one_line

TAKES = {  # actions, with the names that they take
    "list": (),
    "pull": ("NAME",),
    "remove": ("NAME",),
    "show": ("MODEL",),
    "check": ("DRAFT", "TARGET"),
    "suggest": ("TARGET",),
}
_TEXT = 4096  # tokens of context that the memory of a text is told for
_EVERY = 0.2  # seconds between two lines of progress on a terminal


class Running(NamedTuple):
    """What a running verifier serves. `vocabulary`: the hash of its text tokens.
    `differs`: why the model in a file does not pair with it; None: it does."""

    name: str
    vocabulary: str
    differs: Callable[[Path], str | None]


def parser(program: str) -> Parser:
    """The parser of `PROGRAM models`."""
    actions = ("list", "pull NAME", "remove NAME", "show MODEL", "check DRAFT TARGET", "suggest [TARGET]")
    made = Parser(
        f"{program} models",
        usage="\n".join(f"{'' if at == 0 else 'models '}{each}" for at, each in enumerate(actions)),
        description="Models in the cache that huggingface_hub and llama.cpp share, and on the hub. NAME: user/repo, or "
        "user/repo:Q8_0; MODEL, DRAFT and TARGET: a GGUF file, too. Of a model on the hub, only its head is read then.",
        examples=(
            f"{program} models pull Qwen/Qwen2.5-0.5B-Instruct-GGUF",
            f"{program} models check draft.gguf Qwen/Qwen2.5-7B-Instruct-GGUF:Q8_0",
        ),
    )
    made.add_argument("action", choices=OneOf(tuple(TAKES)), help="what to do")
    made.add_argument("names", nargs="*", metavar="NAME", help="which models")
    return made


def run(
    made: Parser,
    options: argparse.Namespace,
    running: Callable[[], Running | None],
    open_hub: Callable[[], Hub] = Hub,
) -> int:
    """Do what the options say. Returns the exit status: 1 for an error that was told, and if two models do not pair.

    `made`: tells of wrong names, and exits with 2.
    `running`: what a verifier serves now; None: none answers.
    `open_hub`: may raise MissingExtra.
    """
    wanted, named = TAKES[options.action], options.names
    if len(named) != len(wanted) and (options.action != "suggest" or named):
        takes = " and ".join(wanted) or "no name"
        made.error(f"{options.action} takes {takes}, got {one_line(' '.join(named)) or 'nothing'}")
    try:
        hub = open_hub()
        if options.action == "list":
            return _list(hub, running())
        if options.action == "suggest":
            return _suggest(hub, running, made.prog.split()[0], *(named or [None]))
        return _ACTIONS[options.action](hub, *named)
    except (HubError, MissingExtra, OSError) as error:
        print(f"{made.prog.split()[0]}: {one_line(str(error))}", file=sys.stderr)
        return 1


def _list(hub: Hub, running: Running | None) -> int:
    models = list(in_cache(hub))
    if not models:
        print("no model is in the cache: fetch one with `models pull user/repo`", file=sys.stderr)
        return 0
    heads = ["name", "size", "type", "kind", "ids"]
    rows = [[*heads, f"drafts for {one_line(running.name)}"] if running else heads]
    for each in models:
        row = [str(each.name), _size(each.size), *_about(each)]
        rows.append(row if running is None else [*row, "yes" if running.differs(each.path) is None else "no"])
    _print(rows)
    return 0


def _about(cached: Cached) -> list[str]:
    try:
        model = cached.described()
    except BadHead:
        return ["?", "damaged", "-"]
    return [model.quantization, f"{model.architecture}, {model.kind}", f"{model.ids:,}"]


def _pull(hub: Hub, text: str) -> int:
    name = parse_name(text)
    told = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal told
        if sys.stderr.isatty() and (done == total or time.monotonic() - told >= _EVERY):
            told = time.monotonic()
            share = done / total if total else 1.0
            print(f"\r{name}: {_size(done)} of {_size(total)} ({share:.0%})", end="", file=sys.stderr, flush=True)

    try:
        path = fetch_model(name, hub, progress, refresh=True)
    finally:
        if told:
            print(file=sys.stderr)
    print(path)
    return 0


def _remove(hub: Hub, text: str) -> int:
    name = parse_name(text)
    here = [each for each in in_cache(hub) if each.name.repository == name.repository]
    found = [each for each in here if (each.name.tag or "").lower() == (name.tag or "").lower()]
    cached = hub.cached(name.repository)
    if name.tag is None and cached.folder.is_dir():
        freed = cached.remove_all()
    elif found:
        freed = sum(cached.remove(path) for each in found for path in each.paths)
    else:
        there = ", ".join(str(each.name) for each in here) or "nothing of that repository"
        raise HubError(f"{name} is not in the cache: it has {there}")
    print(f"{name} is removed: {_size(freed)} are free", file=sys.stderr)
    return 0


def _show(hub: Hub, text: str) -> int:
    model = described(text, hub)
    vocabulary = model.vocabulary
    tokens = (
        "none in the file"
        if vocabulary is None
        else (
            f"{len(vocabulary.pieces):,} ids ({vocabulary.scheme}), begin token {_id(vocabulary.begin)}, end token "
            f"{_id(vocabulary.end)}"
        )
    )
    _print(
        [
            ["model", model.name],
            ["architecture", f"{model.architecture}: {model.kind}"],
            ["weights", _weights(model)],
            [
                "context",
                f"{model.context:,} tokens, as trained; a text of {_TEXT:,} takes {_size(_TEXT * model.kv_bytes)}",
            ],
            ["vocabulary", tokens],
            ["chat templates", ", ".join(model.chat_templates) or "none: give one with --chat-template FILE"],
        ]
    )
    return 0


def _check(hub: Hub, draft_text: str, target_text: str) -> int:
    draft, target = described(draft_text, hub), described(target_text, hub)
    verdict = judge(draft, target)
    needs = f"{_needs(draft)} where it drafts, {_needs(target)} where it verifies, for a text of {_TEXT:,} tokens"
    rows = [
        ["draft model", f"{draft.name}: {_weights(draft)}"],
        ["target", f"{target.name}: {_weights(target)}"],
        ["memory", needs],
        [
            "cost",
            f"a draft step reads {verdict.share:.2f} of the bytes of a step of the target: its time, on like memory",
        ],
        ["vocabulary", "the same" if verdict.difference is None else f"not the same: {verdict.difference}"],
        ["verdict", _verdict(verdict.pairs, verdict.share)],
    ]
    _print(rows)
    return 0 if verdict.pairs else 1


def _verdict(pairs: bool, share: float) -> str:
    if not pairs:
        return "no pair by themselves: with --translate, the one drafts for the other through text"
    return "a pair" if share < 1 else "a pair, but the draft model is no smaller than the target: it saves nothing"


def _suggest(hub: Hub, running: Callable[[], Running | None], program: str, text: str | None) -> int:
    """`text`: the target; None: what the running verifier serves."""
    served = running() if text is None else None
    target = None if text is None else described(text, hub)
    model = target or served
    if model is None:
        raise HubError("no verifier answers that would say what it serves: name a target, or the verifier")
    name = model.name
    rows = [["name", "size", "where", "what is known"]]
    for cached in in_cache(hub):
        share = _share(cached, target, served)
        if share is not None:
            rows.append([str(cached.name), _size(cached.size), "in the cache", share])
    here = {row[0].lower() for row in rows}
    stem = name.rpartition("/")[2]
    for entry in drafters_for(stem, None if served is None else served.vocabulary):
        if entry.name.lower() not in here:
            known = ", ".join(filter(None, (entry.licence, entry.agreement and f"agreement {entry.agreement}")))
            rows.append([entry.name, _size(entry.bytes), f"{program} models pull {entry.name}", known])
    if len(rows) == 1:
        print(f"nothing is known to draft for {one_line(name)}: try a smaller model of its family", file=sys.stderr)
        return 1
    _print(rows)
    return 0


def _share(cached: Cached, target: Described | None, served: Running | None) -> str | None:
    """What is known of a model in the cache as a drafter; None: it does not pair, or is no smaller."""
    try:
        if target is None:
            if served is None or cached.path.stem == served.name:  # a target does not draft for itself
                return None
            return "the same vocabulary" if served.differs(cached.path) is None else None
        verdict = judge(cached.described(), target)
    except BadHead:
        return None
    return f"reads {verdict.share:.2f} of the target's bytes" if verdict.pairs and verdict.share < 1 else None


_ACTIONS: dict[str, Callable[..., int]] = {
    "pull": _pull,
    "remove": _remove,
    "show": _show,
    "check": _check,
}


def _weights(model: Described) -> str:
    return f"{model.parameters / 1e9:.2f}B parameters in {model.quantization}, {_size(model.weight_bytes)}"


def _needs(model: Described) -> str:
    return _size(model.weight_bytes + _TEXT * model.kv_bytes)


def _id(token: int | None) -> str:
    return "not stated" if token is None else str(token)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _print(rows: Sequence[Sequence[str]]) -> None:
    """Print a table. Nothing in it can move the cursor."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def own(program: str, arguments: Sequence[str]) -> int:
    """Run the command of a program that knows no verifier. Returns the exit status."""
    made = parser(program)
    return run(made, made.parse(arguments), lambda: None)
