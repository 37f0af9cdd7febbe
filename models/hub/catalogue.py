"""The catalogue: which models and heads on the hub draft for a target, and which models fit this machine."""

import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from math import log2
from os import environ
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, PositiveInt, StringConstraints, ValidationError

from models.errors import BadCatalogue
from models.hub.names import HEADS, parse_name
from specpair.numbers import sized

FILE = Path(__file__).with_name("catalogue.toml")
FURTHER = "SPECPAIR_CATALOGUE"  # the variable that names a file whose entries come before those that ship
NEEDS = 1.5  # bytes of memory that a draft model and the KV cache of a text take, as a multiple of the file's
_OPEN = re.compile("(?:Apache|MIT|BSD|ISC|CC0)[-0-9.A-Za-z]*")  # licences without terms of use
_PARAMETERS = re.compile(r"(?<![a-z0-9.])e?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")  # as names state them: 8b, 270m, e2b
_MAKER = re.compile(r"^[a-z0-9.-]+_")  # which some put before the name of a file, as google_gemma-3-27b-it
_SMALLER = 0.6  # parameters of a draft model, at most, as a share of the target's
_FAMILY = "a smaller model of its family, or one made to draft for it (DRAFT is in its name)"


def _named(text: str) -> str:
    parse_name(text)
    return text


def _kind_of_head(text: str) -> str:
    if text not in HEADS:
        raise ValueError(f"choose one of {', '.join(HEADS)}")
    return text


def _matches(target: str, patterns: Iterable[str]) -> int:
    """The length of the longest pattern that a target's name matches; 0: none."""
    names = {target.lower(), _MAKER.sub("", target.lower())}
    return max((len(each) for each in patterns if any(fnmatchcase(name, each) for name in names)), default=0)


def _parameters(name: str) -> float | None:
    """The parameters that a model's name states, in billions."""
    found = _PARAMETERS.search(name.lower())
    return None if found is None else float(found[1]) * (1.0 if found[2] == "b" else 1e-3)


class CatalogueEntry(BaseModel, frozen=True, extra="forbid", strict=True):
    """A draft model. The file says what each field means."""

    name: Annotated[str, AfterValidator(_named)]
    vocabulary: Annotated[str, StringConstraints(pattern="^([0-9a-f]{64})?$")]  # a SHA-256, or empty
    targets: list[str]
    bytes: PositiveInt
    licence: str
    agreement: str = ""

    def drafts_for(self, target: str, vocabulary: str | None) -> bool:
        """Whether it drafts for a target with this name and this hash of its text tokens; None: unknown hash."""
        if self.vocabulary and vocabulary is not None:
            return self.vocabulary == vocabulary
        return _matches(target, self.targets) > 0

    def is_smaller_than(self, target: str) -> bool:
        """Whether it is another model than the target, and clearly smaller, as far as their names say."""
        file = self.name.partition("/")[2].partition(":")[0].lower().removesuffix("-gguf")
        ours, theirs = _parameters(file), _parameters(target)
        if _matches(target, [f"{file}*"]):
            return False
        return ours is None or theirs is None or ours <= _SMALLER * theirs

    @property
    def words(self) -> str:
        """Name, size and licence."""
        return f"{self.name}, {sized(self.bytes)}, {self.licence}"


class TargetWithHead(BaseModel, frozen=True, extra="forbid", strict=True):
    """A repository that has a target and a head for it. The file says what each field means."""

    name: Annotated[str, AfterValidator(_named)]
    kind: Annotated[str, AfterValidator(_kind_of_head)]
    own_file: bool
    targets: list[str]

    @property
    def words(self) -> str:
        """What the repository has, and the command that fetches it."""
        place = f"a file of its own (pull --head {self.kind})" if self.own_file else "the model's file"
        return f"the target with its {self.kind} head in {place}"


class UndraftedFamily(BaseModel, frozen=True, extra="forbid", strict=True):
    """A family without a draft model. The file says what each field means."""

    family: str
    targets: list[str]
    look_for: str


class Catalogue(BaseModel):
    drafter: list[CatalogueEntry] = []
    head: list[TargetWithHead] = []
    undrafted: list[UndraftedFamily] = []


def read_catalogue(path: Path = FILE) -> Catalogue:
    """Raises BadCatalogue, with the number of the entry that is wrong."""
    try:
        return Catalogue.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        kind, *at = (wrong := error.errors()[0])["loc"]
        if not at:
            raise BadCatalogue(f"{path} is no catalogue of draft models: write [[{kind}]] above each") from None
        field = "".join(f"{each}: " for each in at[1:2])
        raise BadCatalogue(f"{path}: {kind} {int(at[0]) + 1}: {field}{wrong['msg']}") from None
    except (OSError, ValueError) as error:
        raise BadCatalogue(f"{path} is no catalogue of draft models: {error}") from None


def whole_catalogue() -> Catalogue:
    """The user's catalogue, if there is one, followed by the one that ships. Raises BadCatalogue."""
    further, ships = environ.get(FURTHER), read_catalogue()
    own = read_catalogue(Path(further)) if further else Catalogue()
    return Catalogue(
        drafter=own.drafter + ships.drafter, head=own.head + ships.head, undrafted=own.undrafted + ships.undrafted
    )


class DraftChoice(NamedTuple):
    """`entries`: the draft models that fit, the best first. `advice`: what to look for where there are none, as a
    sentence."""

    entries: list[CatalogueEntry]
    advice: str


def choose_drafter(
    target: str, vocabulary: str | None, free: float | None = None, known: Catalogue | None = None
) -> DraftChoice:
    """Rank the draft models for a target: those made for its name before those of its vocabulary, then by size, the
    smallest first; of about one size, those of an open licence first.

    `target`, `vocabulary`: its name, and the hash of its text tokens; None: unknown.
    `free`: bytes of memory for a draft model; None: unknown.
    `known`: in place of the whole catalogue.

    Raises BadCatalogue.
    """
    known = known or whole_catalogue()
    found = [each for each in known.drafter if each.drafts_for(target, vocabulary) and each.is_smaller_than(target)]
    fitting = [each for each in found if free is None or NEEDS * each.bytes <= free]

    def rank(each: CatalogueEntry) -> tuple[bool, int, bool]:
        return not _matches(target, each.targets), round(2 * log2(each.bytes)), not _OPEN.fullmatch(each.licence)

    if fitting:
        return DraftChoice(sorted(fitting, key=rank), "")
    if found and free is not None:
        least = min(found, key=lambda each: each.bytes)
        needed, room = sized(NEEDS * least.bytes), sized(free)
        return DraftChoice([], f"{least.words}, drafts for {target}: it needs {needed} of memory, and {room} are free")
    named = max(known.undrafted, key=lambda each: _matches(target, each.targets), default=None)
    if named is not None and _matches(target, named.targets):
        return DraftChoice([], f"no draft model is known for {named.family}: {named.look_for}")
    return DraftChoice([], f"no draft model is known for {target}: look for {_FAMILY}")


def heads_for(target: str, known: Catalogue | None = None) -> list[TargetWithHead]:
    """The repositories that have a target of this name with a head that drafts for it. Raises BadCatalogue.

    `known`: in place of the whole catalogue.
    """
    return [each for each in (known or whole_catalogue()).head if _matches(target, each.targets)]
