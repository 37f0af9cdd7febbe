"""The catalogue of draft models that are known to work: `catalogue.toml` here, and a file of the user's."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import environ
from pathlib import Path

from models.errors import BadCatalogue
from models.hub.names import parse_name

FILE = Path(__file__).with_name("catalogue.toml")
FURTHER = "SPECPAIR_CATALOGUE"  # the variable that names a file whose entries come before those that ship
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A draft model. The file says what each field means."""

    name: str
    vocabulary: str
    targets: tuple[str, ...]
    bytes: int
    licence: str
    agreement: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a value that is none of its field."""
        parse_name(self.name)
        for field in ("vocabulary", "licence", "agreement"):
            if not isinstance(getattr(self, field), str):
                raise ValueError(f"{field} is {getattr(self, field)!r}, and must be a text")
        if self.vocabulary and not _HASH.fullmatch(self.vocabulary):
            raise ValueError(f"vocabulary is {self.vocabulary!r}, and must be a SHA-256 in lower case, or empty")
        if not all(isinstance(each, str) for each in self.targets):
            raise ValueError(f"targets is {list(self.targets)!r}, and must be names")
        if type(self.bytes) is not int or self.bytes < 1:
            raise ValueError(f"bytes is {self.bytes!r}, and must be a whole number above 0")

    def drafts_for(self, target: str, vocabulary: str | None) -> bool:
        """Whether it is known to draft for a target of this name, whose text tokens have this hash; None: not known."""
        if self.vocabulary and vocabulary is not None:
            return self.vocabulary == vocabulary
        return any(fnmatchcase(target.lower(), pattern) for pattern in self.targets)


def read_catalogue(path: Path = FILE) -> list[CatalogueEntry]:
    """The entries of a catalogue. Raises BadCatalogue, with the number of the entry that is wrong."""
    entries = []
    try:
        listed = tomllib.loads(path.read_text(encoding="utf-8")).get("drafter", ())
    except (OSError, ValueError) as error:
        raise BadCatalogue(f"{path} is no catalogue of draft models: {error}") from None
    if not isinstance(listed, Sequence):
        raise BadCatalogue(f"{path} is no catalogue of draft models: write [[drafter]] above each")
    for number, given in enumerate(listed, 1):
        try:
            entries.append(CatalogueEntry(**{**given, "targets": tuple(given["targets"])}))
        except KeyError as error:
            raise BadCatalogue(f"{path}: drafter {number}: it has no {error.args[0]}") from None
        except (TypeError, ValueError) as error:
            raise BadCatalogue(f"{path}: drafter {number}: {error}") from None
    return entries


def drafters_for(target: str, vocabulary: str | None) -> list[CatalogueEntry]:
    """The draft models of the catalogue for a target; see `CatalogueEntry.drafts_for`. A target is not its own.

    Raises BadCatalogue.
    """
    own, further = target.lower(), environ.get(FURTHER)
    entries = [*([] if not further else read_catalogue(Path(further))), *read_catalogue()]
    return [
        each for each in entries if each.drafts_for(target, vocabulary) and not own.startswith(_file_stem(each.name))
    ]


def _file_stem(name: str) -> str:
    """How the files of a repository begin: its name without what tells their form."""
    return name.partition("/")[2].partition(":")[0].lower().removesuffix("-gguf")
