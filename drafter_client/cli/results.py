"""The results file: each result is written at once, and an interrupted run continues from it.

A line is one JSON object, of a prompt with its settings and its result.

For a finished prompt it is the object that `--json` prints for one text, preceded by

    format   name and version of this format
    index    of the prompt in its file, from 0
    id       of the prompt, null if it has none
    prompt   its text, or its messages
    asked    its settings and the target, and the draft models if the strategy lets the text depend on them. For a
             seed of null, `sampling` has the seed that was drawn

A prompt that failed has `error` (`code`, `type`, `message`) instead of the rest. Lines come in the order in which
prompts finish. A prompt may have several lines, as the next run tries a failed one again: the last line of a finished
text counts, or else the last line.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from drafter_client.cli.prompts import FilePrompt
from drafter_client.errors import BadOutput, ForeignOutput, OtherResults, OutputBusy
from drafter_client.options import Mode, Options
from specpair import shared_files
from specpair.protocol.errors import SpecPairError
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT

FORMAT = "specpair-result-1"
_OPENING = json.dumps({"format": FORMAT, "index": 0}).encode().partition(b"0}")[0]  # every line begins so
_TEXTS = ("text", "model", "draft_model")
COUNTS = ("generated_tokens", "rounds", "drafted", "accepted", "bytes_sent", "bytes_received")
_TIMES = ("ttft_ms", "total_ms")


class ModelNames(NamedTuple):
    """Names of the target and of the draft models `here` (on this machine) and `there` (on the verifier), if any."""

    target: str
    here: str | None = None
    there: str | None = None

    def drafting(self, options: Options) -> list[str | None]:
        """The draft models that a text with these options can be drafted with."""
        places = {Mode.REMOTE: self.here, Mode.FUSED: self.there}
        mode = options.settled_mode([*(mode for mode, model in places.items() if model is not None), Mode.TARGET])
        return [] if mode is Mode.TARGET else [places[mode]]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the prompt `index`, from 0: the parsed `line` of the file."""

    index: int
    line: dict[str, Any]

    @property
    def failed(self) -> bool:
        return "error" in self.line


def finished(prompt: FilePrompt, models: ModelNames, report: dict[str, Any]) -> Result:
    """The result of a finished prompt. `report`: what `Stats.report` returned for its text."""
    return Result(prompt.index, _head(prompt, models) | report)


def failed(prompt: FilePrompt, models: ModelNames, error: Exception) -> Result:
    """The result of a prompt that failed. Errors of the REST protocol keep the JSON form that they have there."""
    if isinstance(error, SpecPairError):
        shown = error.body()["error"]
    else:
        code = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
        shown = {"code": code, "type": "drafter_error", "message": str(error)}
    return Result(prompt.index, _head(prompt, models) | {"error": shown})


def _head(prompt: FilePrompt, models: ModelNames) -> dict[str, Any]:
    options = prompt.options
    asked = {"target": models.target, "chat": prompt.chat, "system": prompt.system} | options.settings()
    if options.strategy not in DRAFTER_INVARIANT:
        asked["drafting"] = models.drafting(options)
    head = {"format": FORMAT, "index": prompt.index, "id": prompt.id, "prompt": prompt.said, "asked": asked}
    parsed: dict[str, Any] = json.loads(json.dumps(head))  # so that it equals its parsed line
    return parsed


def encode(result: Result) -> bytes:
    return json.dumps(result.line).encode() + b"\n"


def parse(data: bytes, name: str) -> tuple[list[Result], int]:
    """The results in `data`, the content of the file called `name`; and the number of bytes that they take.

    A last line that was cut off is left out. Raises ForeignOutput where there is anything else than results.
    """
    *lines, tail = data.split(b"\n")
    results = [_result(line, name, number) for number, line in enumerate(lines, 1)]
    if not (tail.startswith(_OPENING) or _OPENING.startswith(tail)):
        raise _foreign(name, len(lines) + 1)
    return results, len(data) - len(tail)


def _result(line: bytes, name: str, number: int) -> Result:
    try:
        record = json.loads(line) if line.startswith(_OPENING) else None
    except (ValueError, RecursionError):
        record = None
    if type(record) is not dict or not _is_whole(record):
        raise _foreign(name, number)
    return Result(record["index"], record)


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether a line has every key that this module and `show_totals` read. Types are compared: true is no number."""
    kinds: dict[tuple[str, ...], tuple[type, ...]] = {
        ("index",): (int,),
        ("asked",): (dict,),
    }  # types are compared: true is no number here
    if "error" in record:
        if type(record["error"]) is not dict or type(record["error"].get("message")) is not str:
            return False
    else:
        kinds |= {_TEXTS: (str,), COUNTS: (int,), _TIMES: (int, float)}
    typed = all(type(record.get(name)) in types for names, types in kinds.items() for name in names)
    return typed and {"id", "prompt"} <= record.keys()


def _foreign(name: str, number: int) -> ForeignOutput:
    return ForeignOutput(
        f"{name}, line {number}: this is no result of --prompt-file: the file is left as it is, give another --output"
    )


def latest(results: Iterable[Result]) -> dict[int, Result]:
    """The result that counts for each prompt, by index and in order: the last finished text, or else the last line."""
    chosen: dict[int, Result] = {}
    for result in results:
        if not result.failed or result.index not in chosen or chosen[result.index].failed:
            chosen[result.index] = result
    return dict(sorted(chosen.items()))


def check(results: Iterable[Result], prompts: Sequence[FilePrompt], models: ModelNames, name: str) -> None:
    """Check that the results in the file called `name` are of these prompts and models. Raises OtherResults."""
    for result in results:
        number = result.index + 1
        if not 0 <= result.index < len(prompts):
            raise _other(name, f"prompt {number} of a file that now has {len(prompts)}")
        head = _head(prompts[result.index], models)
        for key in ("prompt", "id"):
            if result.line.get(key) != head[key]:
                raise _other(name, f"the {key} of prompt {number} was {_brief(result.line, key, head)}")
        then, now = result.line["asked"], head["asked"]
        names = [key for key in now | then if then.get(key) != now.get(key)]
        if names:
            differences = ", ".join(f"{key} was {_brief(then, key, now)}" for key in names)
            raise _other(name, f"prompt {number} had other settings: {differences}")


def _brief(then: dict[str, Any], key: str, now: dict[str, Any]) -> str:
    old, new = (json.dumps(each.get(key), ensure_ascii=False) for each in (then, now))
    old, new = (text if len(text) <= 60 else f"{text[:59]}…" for text in (old, new))
    return f"{old} and is {new}" if old != new else f"{old}, and is no longer"


def _other(name: str, what: str) -> OtherResults:
    advice = "Give another --output, or the settings of that run"
    return OtherResults(f"{name} holds the results of another run: {what}. {advice}")


class ResultsFile:
    """Opens, locks and reads the file, so that an unusable file is refused before any work.

    No other run may use it until `close`. Nothing is written before `begin`; without `begin`, a new file is removed
    again. Raises BadOutput, OutputBusy, and ForeignOutput where the file holds anything else than results.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path.resolve()  # so that the file is replaced, and not a link to it
        self._begun = False
        self._descriptor: int | None = None
        with self._errors_named():
            if self._path.exists() and not self._path.is_file():
                raise BadOutput(f"{self.name} is not a regular file: name one for --output")
            self._is_new = not self._path.exists()
            self._descriptor = self._opened()
            try:
                self._results, self._whole = parse(self._path.read_bytes(), self.name)
            except BaseException:
                self.close()
                raise

    def _opened(self) -> int:
        """Open and lock the file, again if another run replaced or removed it between these two steps."""
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            descriptor = os.open(self._path, flags, 0o666)
            try:
                if not shared_files.lock(descriptor, wait=False):
                    raise OutputBusy(f"another run writes to {self.name}: wait for its end, or give another --output")
                if self._path.exists() and os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def begin(self, prompts: Sequence[FilePrompt], models: ModelNames) -> dict[int, Result]:
        """Drop a last line that was cut off. Returns the results so far, by prompt index.

        Raises OtherResults where the results are of other prompts or settings.
        """
        assert self._descriptor is not None, "it was closed"
        check(self._results, prompts, models, self.name)
        with self._errors_named():
            os.ftruncate(self._descriptor, self._whole)
        self._begun = True
        return latest(self._results)

    def add(self, result: Result) -> None:
        """Write a result at once: other processes see it, and it outlives this one."""
        assert self._begun and self._descriptor is not None, "between begin and close"
        self._results.append(result)
        line = encode(result)
        with self._errors_named():
            while line:
                line = line[os.write(self._descriptor, line) :]

    def put_in_order(self) -> None:
        """Keep the one line of each prompt that counts, in order, and close. The file is replaced atomically."""
        ordered = list(latest(self._results).values())
        if ordered == self._results:
            self.close()
            return
        with self._errors_named(), shared_files.replacing(self._path) as new:
            new.writelines(encode(result) for result in ordered)
            new.flush()
            os.fsync(new.fileno())
            if sys.platform == "win32":  # where an open file cannot be replaced, and files are not locked
                self.close()
        self.close()

    def close(self) -> None:
        """Unlock and close the file. A second close does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._is_new and not self._begun:
            with suppress(OSError):  # an empty file then stays, which does no harm
                os.unlink(self._path)
        os.close(descriptor)

    def __enter__(self) -> "ResultsFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadOutput(f"results cannot be kept in {self.name}: {error.strerror or error}") from None
