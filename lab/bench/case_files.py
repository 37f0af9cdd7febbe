"""Reads cases from YAML files: shipped files, and the user's files."""

import fnmatch
import json
from collections.abc import Iterable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab.bench.case import Arrival, Case, Due, Prompt
from lab.bench.errors import BadCase
from lab.request_traces import BadTrace, requests
from lab.user_files import first_mistake, keys_of, text_of
from specpair.command_line.setting_values import advice


def parse_trace(text: str, name: str) -> list[Due]:
    """The requests of the trace in the file called `name`, by their times. Raises BadCase, which names the line."""
    try:
        found = sorted(requests(text.splitlines(), name))
    except BadTrace as error:
        raise BadCase(str(error)) from None
    return [Due(each.seconds - found[0].seconds, each.input_tokens, each.output_tokens) for each in found]


_PROMPT = TypeAdapter(Prompt)


def shipped_cases() -> dict[str, Case]:
    """The cases that ship, by name."""
    with as_file(files(__package__) / "shipped_cases") as folder:
        return {case.name: case for case in read_cases(folder)}


def read_cases(path: Path) -> list[Case]:
    """The case in a file, or those in a folder's files that end in .yaml or .yml. Raises BadCase."""
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml"))
        if not found:
            raise BadCase(f"--cases: the folder {path} has no file that ends in .yaml")
        return [_read(each) for each in found]
    return [_read(path)]


def chosen_cases(names: Sequence[str], own: Iterable[Path]) -> list[Case]:
    """The cases with these names, in that order; without names, all of `own`, or else all shipped cases.

    `names`: `aws-*` stands for all that begin so.
    `own`: files and folders of a user's cases, which come before those that ship.
    """
    mine: dict[str, Case] = {}
    for path in own:
        for case in read_cases(path):
            if case.name in mine:
                raise BadCase(f"--cases: two cases are called {case.name}: rename one of the files")
            mine[case.name] = case
    known = mine if mine and not names else {**shipped_cases(), **mine}
    chosen: dict[str, Case] = {}
    for name in names or ["*"]:
        found = fnmatch.filter(known, name)
        if not found:
            own_files = "" if mine else " (files of your own: --cases)"
            raise BadCase(f"no case {name!r}{own_files}{advice(name, sorted(known))}")
        chosen |= {each: known[each] for each in found}
    return list(chosen.values())


def _read(path: Path) -> Case:
    """The case in a file. Raises BadCase, which names the file and the key."""
    given = keys_of(path, BadCase, "write at least group, description and prompts", f"the case {path}")
    try:
        case = Case.model_validate({"name": path.stem, **given, "prompts": _prompts(given.get("prompts", []))})
    except ValidationError as error:
        raise BadCase(f"the case {path}: {first_mistake(error)}") from None
    if case.prompt_file is not None:
        case = case.model_copy(update={"prompts": [*case.prompts, *_prompt_file(path.parent / case.prompt_file)]})
    if not case.prompts:
        raise BadCase(f"the case {path} has no prompts: give prompts, or a prompt_file")
    if case.api == "completions" and case.needs_chat:
        raise BadCase(f"the case {path}: messages and turns are for chats, and api is completions")
    if not case.arrival.is_closed and any(prompt.turns for prompt in case.prompts) and case.concurrency is not None:
        raise BadCase(f"the case {path}: arrivals of conversations are not limited: leave concurrency out")
    trace = case.arrival.trace
    if trace is None:
        return case
    file = path.parent / trace.file
    found = parse_trace(text_of(file, BadCase, _named(file)), str(file))
    arrival = Arrival(trace=trace.model_copy(update={"requests": found}))
    return case.model_copy(update={"arrival": arrival, "requests": case.requests or len(found)})


def _prompts(given: Any) -> Any:
    """Prompts, each as an object: a plain text becomes the key `text`."""
    return [{"text": each} if isinstance(each, str) else each for each in given] if type(given) is list else given


def _prompt_file(path: Path) -> list[Prompt]:
    """Prompts, one a line: objects with the keys of a prompt, or with `prompt` or `question` in place of `text`, as
    public sets of prompts have it. A reference `answer` is left out."""
    found = []
    for number, line in enumerate(text_of(path, BadCase, _named(path)).splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            for name in ("prompt", "question"):
                if type(given) is dict and name in given:
                    given["text"] = given.pop(name)
            if type(given) is dict:
                given.pop("answer", None)  # of GSM8K: texts are compared with those of other sides
            found.append(_PROMPT.validate_python(given))
        except ValidationError as error:
            raise BadCase(f"{path}, line {number}: {first_mistake(error)}") from None
        except ValueError:
            raise BadCase(f"{path}, line {number}: this is not JSON") from None
    return found


def _named(path: Path) -> str:
    """The name in errors of a file that a case refers to."""
    return f"{path}, which a case names,"
