"""Reads cases from YAML files, those that ship and those of a user, and says when their requests are due."""

import fnmatch
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from importlib.resources import as_file, files
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from lab.bench.case import Arrival, Bursts, Case, Poisson, Prompt, Traced
from lab.bench.errors import BadCase
from lab.given_files import first_mistake, keys_of, text_of
from lab.request_traces import BadTrace, requests
from specpair.command_line.given_values import advice


class Due(NamedTuple):
    """A request of a trace: seconds after the first, and how long its input and output were."""

    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None


def due_times(arrival: Arrival, count: int, seed: str, trace: Sequence[Due]) -> list[float] | None:
    """Seconds after the beginning at which `count` requests are due, in ascending order. None: a closed loop, in which
    a request begins as another ends.

    `seed`: of random arrivals.
    `trace`: what the file of `arrival` has, if it names one; it begins anew behind its end.
    """
    if arrival == "closed":
        return None
    if isinstance(arrival, Poisson):
        draw = random.Random(seed)
        gaps = [draw.expovariate(arrival.poisson) for _ in range(count)]
        return list(accumulate(gaps))
    if isinstance(arrival, Bursts):
        return [number // arrival.bursts.size * arrival.bursts.every for number in range(count)]
    speed = arrival.trace.speed
    mean = trace[-1].seconds / max(1, len(trace) - 1)
    length = trace[-1].seconds + mean  # from one first request to the next
    return [(number // len(trace) * length + trace[number % len(trace)].seconds) / speed for number in range(count)]


def parse_trace(text: str, name: str) -> list[Due]:
    """The requests of the trace in the file called `name`, by their times. Raises BadCase, which names the line."""
    try:
        found = sorted(requests(text.splitlines(), name))
    except BadTrace as error:
        raise BadCase(str(error)) from None
    return [Due(each.seconds - found[0].seconds, each.input_tokens, each.output_tokens) for each in found]


_PROMPT = TypeAdapter(Prompt)


@dataclass(frozen=True)
class LoadedCase:
    """A case with what its files have.

    `trace`: the requests of its trace; empty: its arrivals are no trace.
    """

    case: Case
    trace: Sequence[Due] = ()

    @property
    def name(self) -> str:
        return self.case.name

    @cached_property
    def prompts_hash(self) -> str:
        said = [prompt.model_dump() for prompt in self.case.prompts]
        return sha256(json.dumps([self.case.system, said], sort_keys=True).encode()).hexdigest()[:16]

    def changed(self, **fields: Any) -> "LoadedCase":
        """The case with other values of some keys."""
        return replace(self, case=self.case.model_copy(update=fields))


def shipped_cases() -> dict[str, LoadedCase]:
    """The cases that ship, by name."""
    with as_file(files(__package__) / "shipped_cases") as folder:
        return {case.name: case for case in read_cases(folder)}


def read_cases(path: Path) -> list[LoadedCase]:
    """The case in a file, or those in a folder's files that end in .yaml or .yml. Raises BadCase."""
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml"))
        if not found:
            raise BadCase(f"--cases: the folder {path} has no file that ends in .yaml")
        return [_read(each) for each in found]
    return [_read(path)]


def chosen_cases(names: Sequence[str], own: Iterable[Path]) -> list[LoadedCase]:
    """The cases called so, in that order; without names, all of `own`, or else all that ship.

    `names`: `aws-*` stands for all that begin so.
    `own`: files and folders of a user's cases, which come before those that ship.
    """
    mine: dict[str, LoadedCase] = {}
    for path in own:
        for case in read_cases(path):
            if case.name in mine:
                raise BadCase(f"--cases: two cases are called {case.name}: rename one of the files")
            mine[case.name] = case
    known = mine if mine and not names else {**shipped_cases(), **mine}
    chosen: dict[str, LoadedCase] = {}
    for name in names or ["*"]:
        found = fnmatch.filter(known, name)
        if not found:
            own_files = "" if mine else " (files of your own: --cases)"
            raise BadCase(f"no case {name!r}{own_files}{advice(name, sorted(known))}")
        chosen |= {each: known[each] for each in found}
    return list(chosen.values())


def _read(path: Path) -> LoadedCase:
    """The case in a file. Raises BadCase, which names the file and the key."""
    given = keys_of(path, BadCase, "write at least group, description and prompts", f"the case {path}")
    try:
        case = Case.model_validate({"name": path.stem, **given, "prompts": _prompts(given.get("prompts", []))})
    except ValidationError as error:
        raise BadCase(f"the case {path}: {_complaint(error)}") from None
    if case.prompt_file is not None:
        case = case.model_copy(update={"prompts": [*case.prompts, *_prompt_file(path.parent / case.prompt_file)]})
    if not case.prompts:
        raise BadCase(f"the case {path} has no prompts: give prompts, or a prompt_file")
    if case.api == "completions" and case.needs_chat:
        raise BadCase(f"the case {path}: messages and turns are for chats, and api is completions")
    if case.arrival != "closed" and any(prompt.turns for prompt in case.prompts) and case.concurrency is not None:
        raise BadCase(f"the case {path}: conversations that arrive have no bound: leave concurrency out")
    return _with_trace(case, path)


def _with_trace(case: Case, path: Path) -> LoadedCase:
    if not isinstance(case.arrival, Traced):
        return LoadedCase(case)
    file = path.parent / case.arrival.trace.file
    trace = parse_trace(text_of(file, BadCase, _named(file)), str(file))
    if case.requests is None:
        case = case.model_copy(update={"requests": len(trace)})
    return LoadedCase(case, trace)


def _prompts(given: Any) -> Any:
    """Prompts of which those that are a mere text are written in full."""
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
            raise BadCase(f"{path}, line {number}: {_complaint(error)}") from None
        except ValueError:
            raise BadCase(f"{path}, line {number}: this is not JSON") from None
    return found


def _named(path: Path) -> str:
    """What errors call a file beside that of a case."""
    return f"{path}, which a case names,"


def _complaint(error: ValidationError) -> str:
    """The first mistake, and where it is. The form of an arrival is named by its key already."""
    return re.sub(r"\b(\w+)\.\1\b", r"\1", first_mistake(error))
