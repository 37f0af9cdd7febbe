"""The name of a model: `user/repo`, or `user/repo:tag`, where the tag names one of the repository's quantizations."""

import re
from dataclasses import dataclass

from models.hub.errors import BadName

_WORD = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_]|[.-](?![.-])){0,95}(?<![.-])")  # as the hub allows user and repository
_TAG = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model on the hub. `tag`: which of the repository's models; None: its usual one."""

    repository: str
    tag: str | None = None

    def __str__(self) -> str:
        return self.repository if self.tag is None else f"{self.repository}:{self.tag}"


def parse_name(text: str) -> ModelName:
    """The name that a user wrote. Raises BadName."""
    repository, colon, tag = text.strip().partition(":")
    words = repository.split("/")
    if len(words) != 2:
        raise BadName(
            f"{text!r} is not the name of a model: write user/repo or user/repo:tag, as org/model-GGUF:Q4_K_M"
        )
    for word, what in zip(words, ("user", "repository"), strict=True):
        if not _WORD.fullmatch(word):
            raise BadName(
                f"{text!r} is not the name of a model: its {what} is {word!r}, and a {what} has letters, digits, _, "
                "and single . or - between them, 96 at most"
            )
    if colon and not _TAG.fullmatch(tag):
        raise BadName(f"{text!r} is not the name of a model: its tag is {tag!r}, write one such as Q4_K_M, or no colon")
    return ModelName(repository, tag or None)
