"""The command `models` of drafter and verifier: lists, fetches, removes, shows and compares models by name."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.commands import showing
from models.commands.cached_models import ServedModel as ServedModel
from models.commands.cached_models import listed, pairing_of, print_list
from models.commands.description import ModelDescription, judge
from models.commands.finding import CachedModel, PartialModel, begun, described, in_cache, shortage
from models.commands.showing import Bar, print_facts, print_json, print_table
from models.errors import HubError
from models.hub.cache import HubFile, Listing
from models.hub.catalogue import DraftChoice, choose_drafter, heads_for, whole_catalogue
from models.hub.download import fetch_model, find_head
from models.hub.names import HEADS, ModelName, parse_name
from models.hub.repository import Hub
from specpair.command_line.parser import OneOf, Parser, Switch
from specpair.command_line.start import run_interruptible
from specpair.engines.load_options import FreeMemory
from specpair.extras import MissingExtra
from specpair.numbers import sized
from specpair.protocol.terminal_text import one_line

TAKES = {  # actions, with the names that they take
    "list": (),
    "pull": ("NAME",),
    "remove": ("NAME",),
    "show": ("MODEL",),
    "check": ("DRAFT", "TARGET"),
    "suggest": ("TARGET",),
}
_FEWEST = {"suggest": 0, "check": 1}  # names that an action takes at least, if fewer
_ACT = ("pull", "remove")  # actions that do something; --json is for the others, which tell something


def parser(program: str) -> Parser:
    """The parser of `PROGRAM models`."""
    actions = ("list", "pull NAME", "remove NAME", "show MODEL", "check DRAFT [TARGET]", "suggest [TARGET]")
    made = Parser(
        f"{program} models",
        usage="\n".join(f"{'' if at == 0 else 'models '}{each}" for at, each in enumerate(actions)),
        description="List, download and compare models of Hugging Face. The cache is the one that huggingface_hub "
        "and llama.cpp share. NAME is user/repo or user/repo:Q8_0. MODEL, DRAFT and TARGET are a "
        "NAME, a GGUF file or a folder; of a NAME that is not in the cache, only the header is "
        "downloaded.",
        examples=(
            f"{program} models pull Qwen/Qwen2.5-0.5B-Instruct-GGUF",
            f"{program} models check draft.gguf Qwen/Qwen2.5-7B-Instruct-GGUF:Q8_0",
        ),
    )
    made.add_argument(
        "action",
        nargs="?",
        choices=OneOf(tuple(TAKES)),
        help="list the cache; download; delete; show a model's properties; check whether two models fit together, or a "
        "draft model of the catalogue against its file; suggest draft models for TARGET, or for the verifier's model",
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="the models")
    made.add_argument(
        "--safetensors", action=Switch, help="pull: download the safetensors, even if the repository has GGUF files"
    )
    made.add_argument(
        "--head",
        choices=OneOf(HEADS),
        metavar="KIND",
        help=f"pull: download the head that drafts for the model, too: {', '.join(HEADS)}",
    )
    made.add_argument("--json", action=Switch, help="list, show, check, suggest: print JSON on standard output")
    return made


def run(
    made: Parser,
    options: argparse.Namespace,
    styles: showing.Styles,
    running: Callable[[], ServedModel | None],
    room: Callable[[], FreeMemory | None] = lambda: None,
    open_hub: Callable[[], Hub] = Hub,
) -> int:
    """Run the command. Returns the exit status: 1 after an error message, or if two models do not pair.

    `made`: tells of wrong names, and exits with 2.
    `styles`: how a chat template has replies written.
    `running`: what a verifier serves now; None: none answers.
    `room`: the memory that a model would be loaded into; None: it is not known.
    `open_hub`: may raise MissingExtra.
    """
    if options.action is None:
        made.error(f"say what to do: {', '.join(TAKES)}")
    wanted, named, action = TAKES[options.action], options.names, options.action
    if not _FEWEST.get(action, len(wanted)) <= len(named) <= len(wanted):
        takes = " and ".join(wanted) or "no name"
        made.error(f"{action} takes {takes}, got {one_line(' '.join(named)) or 'nothing'}")
    if options.json and action in _ACT:
        made.error(f"--json: {action} tells nothing, leave it out")
    for flag in ("safetensors", "head"):
        if getattr(options, flag) and action != "pull":
            made.error(f"--{flag}: only pull takes it, leave it out")
    if options.safetensors and options.head:
        made.error("--head: only a model in a GGUF file has one, leave --safetensors out")
    program = made.prog.split()[0]
    try:
        flags = {"as_json": options.json, "safetensors": options.safetensors, "head": options.head}
        command = _Command(open_hub(), program, styles, running, room, **flags)
        found: int = getattr(command, f"do_{action}")(*named)
        return found
    except (HubError, MissingExtra, OSError) as error:
        print(f"{program}: {one_line(str(error))}", file=sys.stderr)
        return 1


@dataclass(frozen=True)
class _Command:
    """The actions, each of which returns the exit status. They raise HubError and OSError."""

    hub: Hub
    program: str
    styles: showing.Styles
    running: Callable[[], ServedModel | None]
    room: Callable[[], FreeMemory | None]
    as_json: bool
    safetensors: bool
    head: str | None

    def do_list(self) -> int:
        served = self.running()
        models: list[CachedModel | PartialModel] = [*in_cache(self.hub), *begun(self.hub)]
        found = [listed(each, served) for each in models]
        if self.as_json:
            print_json(found)
        elif found:
            print_list(found, served)
        else:
            print("no model is in the cache: fetch one with `models pull user/repo`", file=sys.stderr)
        return 0

    def do_pull(self, text: str) -> int:
        name = parse_name(text)

        def check(listing: Listing, files: list[HubFile]) -> None:
            room = self.room()
            short = None if room is None else shortage(name, self.hub, room, listing, files, head=self.head is not None)
            if short is not None:
                said = f"{short}it is fetched all the same, for a machine or a time with more"
                print(f"{self.program}: {one_line(said)}", file=sys.stderr)

        bar, folder = Bar(str(name), self.program), True if self.safetensors else None

        def fetch() -> Path:
            with bar:
                return fetch_model(name, self.hub, bar, check=check, refresh=True, folder=folder, head=self.head)

        path = run_interruptible(fetch, bar.interrupted)
        print(path)
        return 0 if self.head is None else self._tell_head(name, path, self.head)

    def _tell_head(self, name: ModelName, path: Path, kind: str) -> int:
        """Print the path of a pulled model's head, or say where it is. Returns the exit status."""
        found = find_head(name, self.hub, kind)
        if found is not None:
            print(found)
            return 0
        head = described(str(path), self.hub).head
        if head is not None and head.kind == kind:
            print(f"{self.program}: the {kind} head of {name} is in its own file", file=sys.stderr)
            return 0
        raise HubError(f"{name} is here, and its repository has no {kind} head for it")

    def do_remove(self, text: str) -> int:
        name = parse_name(text)
        models: list[CachedModel | PartialModel] = [*in_cache(self.hub), *begun(self.hub)]
        here = [each for each in models if each.name.repository == name.repository]
        found = [each for each in here if (each.name.tag or "").lower() == (name.tag or "").lower()]
        cached = self.hub.cached(name.repository)
        if name.tag is None and cached.folder.is_dir():
            freed = cached.remove_all()
        elif found:
            heads = [set(each.head_paths if isinstance(each, CachedModel) else ()) for each in here]
            kept = set().union(*(head for each, head in zip(here, heads, strict=True) if each not in found))
            of_heads = set().union(*heads) - kept  # of which another tag that stays has none
            paths = dict.fromkeys(path for each in found for path in (*each.paths, *of_heads))
            freed = sum(cached.remove(path) for path in paths)
        else:
            there = ", ".join(str(each.name) for each in here) or "nothing of that repository"
            raise HubError(f"{name} is not in the cache: it has {there}")
        print(f"{name} is removed: {sized(freed)} are free", file=sys.stderr)
        return 0

    def do_show(self, text: str) -> int:
        model = described(text, self.hub)
        if self.as_json:
            print_json(showing.facts(model, self.styles))
        else:
            print_facts(showing.rows(model, self.styles))
        return 0

    def do_check(self, draft_text: str, target_text: str | None = None) -> int:
        """`target_text`: the target; None: what the catalogue says of the draft model is checked."""
        if target_text is None:
            return self._check_entry(draft_text)
        draft, target = described(draft_text, self.hub), described(target_text, self.hub)
        verdict = judge(draft, target)
        if self.as_json:
            told = {"pairs": verdict.pairs, "difference": verdict.difference, "share": round(verdict.share, 4)}
            both = {"draft": showing.facts(draft, self.styles), "target": showing.facts(target, self.styles)}
            print_json(both | told)
        else:
            print_facts(showing.of_pair(draft, target, verdict))
        return 0 if verdict.pairs else 1

    def _check_entry(self, text: str) -> int:
        entry = next((each for each in whole_catalogue().drafter if each.name.lower() == text.lower()), None)
        if entry is None:
            raise HubError(f"{text} is no draft model of the catalogue: name its entry, or two models to compare")
        model = described(entry.name, self.hub)
        ordinary = "none" if model.vocabulary is None else model.vocabulary.ordinary
        about = abs(model.weight_bytes / entry.bytes - 1) <= _ABOUT
        checked = {  # what the entry says, what the file says, and whether they agree
            "bytes": (entry.bytes, model.weight_bytes, about),
            "vocabulary": (entry.vocabulary or "not known", ordinary, entry.vocabulary in ("", ordinary)),
        }
        right = all(agrees for *_, agrees in checked.values())
        if self.as_json:
            told = {name: {"entry": ours, "file": theirs} for name, (ours, theirs, _) in checked.items()}
            print_json({"draft": entry.name, "right": right} | told)
        else:
            rows = [(name, f"{theirs}; the entry: {ours}") for name, (ours, theirs, _) in checked.items()]
            print_facts([("draft model", entry.words), *rows, ("verdict", "right" if right else "they differ")])
        return 0 if right else 1

    def do_suggest(self, text: str | None = None) -> int:
        """`text`: the target; None: the model of the running verifier."""
        served = self.running() if text is None else None
        target = None if text is None else described(text, self.hub)
        model = target or served
        if model is None:
            raise HubError("no running verifier answers: name a target, or the verifier")
        found = [*self._heads(model.name, target), *self._drafters(model.name, target, served)]
        if self.as_json:
            print_json(found)
        elif found:
            heads = ["name", "size", "where", "what is known"]
            sizes = ("-" if each["bytes"] is None else sized(each["bytes"]) for each in found)
            rows = ([each["name"], size, each["where"], each["known"]] for each, size in zip(found, sizes, strict=True))
            print_table([heads, *rows])
            if any(each["where"] == _ON_HUB for each in found):
                print(f"fetch one with `{self.program} models pull NAME`", file=sys.stderr)
        else:
            print(one_line(self._choice(model.name, target, served).advice), file=sys.stderr)
        return 0 if found else 1

    def _heads(self, name: str, target: ModelDescription | None) -> list[dict[str, Any]]:
        """The target's own head; else repositories of the catalogue that have the target with a head."""
        head = None if target is None else target.head
        if target is not None and head is not None:
            where = target.head_file or "in its file"
            return [{"name": name, "bytes": head.size, "where": where, "known": f"its own {head.kind} head"}]
        entries = heads_for(name.rpartition("/")[2])
        return [{"name": each.name, "bytes": None, "where": _ON_HUB, "known": each.words} for each in entries]

    def _drafters(self, name: str, target: ModelDescription | None, served: ServedModel | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for cached in in_cache(self.hub):
            known = pairing_of(cached, target, served)
            if known is not None:
                found.append({"name": str(cached.name), "bytes": cached.size, "where": "in the cache", "known": known})
        here = {each["name"].lower() for each in found}
        for entry in self._choice(name, target, served).entries:
            if entry.name.lower() not in here:
                known = ", ".join(filter(None, (entry.licence, entry.agreement and f"agreement {entry.agreement}")))
                found.append({"name": entry.name, "bytes": entry.bytes, "where": _ON_HUB, "known": known})
        return found

    def _choice(self, name: str, target: ModelDescription | None, served: ServedModel | None) -> DraftChoice:
        vocabulary, room = None if target is None else target.vocabulary, self.room()
        ordinary = served.vocabulary if served else None if vocabulary is None else vocabulary.ordinary
        return choose_drafter(name.rpartition("/")[2], ordinary, None if room is None else room.free)


_ON_HUB = "on the hub"
_ABOUT = 0.1  # how far the bytes of an entry may be off, as a share
