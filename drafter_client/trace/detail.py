"""`run-N.json`: all that was recorded of a run. docs/traces.md says what its parts mean."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drafter_client.errors import TraceError
from drafter_client.trace.schema import MOST

SCHEMA = 1  # version of the object

_Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=-MOST, le=MOST)]
_KINDS = {"list_type": "is not a list", "model_type": "is not an object", "dict_type": "is not an object"}
_KINDS |= {"string_type": "is not a text", "bool_type": "is not true or false"}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Prefill(_Part):
    """A prefill: milliseconds; `sent_ms` and `arrived_ms` count from the begin of the run."""

    sent_ms: _Number
    queue_ms: _Number
    forward_ms: _Number
    arrived_ms: _Number


class DraftStep(_Part):
    """A draft step: milliseconds since the run began, the tokens read, the branches, and a draft token for each."""

    began_ms: _Number
    ended_ms: _Number
    read: _Whole | None = None
    width: _Whole | None = None
    drafts: list[_Whole] = []


class SelfContinuationPass(_Part):
    """A pass of self-continuation: its duration, and when the drafter heard of it, in milliseconds."""

    forward_ms: _Number
    arrived_ms: _Number


class RoundDrafts(_Part):
    """The draft tokens of a verify request: ids, the drafter's probabilities, and whether each was looked up."""

    drafts: list[_Whole] = []
    confidence: list[_Number | None] = []
    from_lookup: list[bool] = []


class TokenDraft(_Part):
    """The draft token that was accepted at a token's place, or that the token replaces: its round, its id, its source,
    and the drafter's probability of it. None: there was none, or it is not known."""

    round: _Whole | None = None
    draft: _Whole | None = None
    draft_source: str | None = None
    confidence: _Number | None = None


class RunDetail(_Part):
    """The whole object. `machine`: the drafter's. `text`, `pieces`: empty where the text was not recorded."""

    machine: dict[str, str] = {}
    settings: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    prefills: list[Prefill]
    rounds: list[RoundDrafts] = []
    steps: list[DraftStep]
    self_continuation_passes: list[SelfContinuationPass]
    tokens: list[TokenDraft] = []
    text: list[str] = []
    pieces: dict[str, str] = {}


def parsed(text: str, path: Path) -> RunDetail:
    """The object in a file's `text`. Raises TraceError, which names the line, or the place in the object."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}, line {error.lineno}: {error.msg}: is it a trace?") from None
    except (ValueError, RecursionError):  # a number with thousands of digits, or thousands of nested lists
        raise _wrong(path, "it", "has a number too long or a list nested too deeply") from None
    if not isinstance(body, dict):
        raise _wrong(path, "it", "is not an object")
    if body.get("schema") != SCHEMA:
        raise TraceError(
            f"{path}: another version wrote it: its schema is {body.get('schema')!r}, this version reads {SCHEMA}"
        )
    try:
        return RunDetail.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        said = _KINDS.get(found["type"], "is not a number of at most 2^53 in size")
        if found["type"] == "missing" and len(found["loc"]) == 1:
            said = "is missing"
        raise _wrong(path, ".".join(map(str, found["loc"])), said) from None


def _wrong(path: Path, name: str, what: str) -> TraceError:
    return TraceError(f"{path}, line 1: {name} {what}: is it a trace?")
