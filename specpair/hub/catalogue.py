"""The catalogue of draft models that are known to work: `catalogue.toml`, beside this module."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("catalogue.toml")


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A draft model. The file says what each field means."""

    name: str
    vocabulary: str
    targets: tuple[str, ...]
    bytes: int
    licence: str
    agreement: str = ""

    def drafts_for(self, target: str, vocabulary: str | None) -> bool:
        """Whether it is known to draft for a target of this name, whose text tokens have this hash; None: not known."""
        if self.vocabulary and vocabulary is not None:
            return self.vocabulary == vocabulary
        return any(fnmatchcase(target.lower(), pattern) for pattern in self.targets)


def read_catalogue(path: Path = FILE) -> list[CatalogueEntry]:
    """The entries of a catalogue. Raises ValueError for a file that is none, with the number of the wrong entry."""
    entries = []
    for number, given in enumerate(tomllib.loads(path.read_text(encoding="utf-8")).get("drafter", ()), 1):
        try:
            entries.append(CatalogueEntry(**given | {"targets": tuple(given["targets"])}))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: drafter {number}: {error}") from None
    return entries


@cache
def _shipped() -> Sequence[CatalogueEntry]:
    return tuple(read_catalogue())


def drafters_for(target: str, vocabulary: str | None) -> list[CatalogueEntry]:
    """The draft models of the catalogue for a target; see `CatalogueEntry.drafts_for`. A target is not its own."""
    own = target.lower()
    return [
        each for each in _shipped() if each.drafts_for(target, vocabulary) and not own.startswith(_file_stem(each.name))
    ]


def _file_stem(name: str) -> str:
    """How the files of a repository begin: its name without what tells their form."""
    return name.partition("/")[2].partition(":")[0].lower().removesuffix("-gguf")
