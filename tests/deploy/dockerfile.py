"""Reads deploy/docker/Dockerfile: its stages and their instructions."""

import json
import re
import shlex
from typing import NamedTuple

from tests.paths import ROOT

FOLDER = ROOT / "deploy" / "docker"
DOCKERFILE = FOLDER / "Dockerfile"


class Stage(NamedTuple):
    """A stage. `base`: an image or a stage. `steps`: instructions behind FROM with their arguments."""

    name: str
    base: str
    steps: list[tuple[str, str]]

    def of(self, instruction: str) -> list[str]:
        return [arguments for name, arguments in self.steps if name == instruction]

    def exec_form(self, instruction: str) -> list[str]:
        """The words of the only such instruction, which needs no shell."""
        [arguments] = self.of(instruction)
        words: list[str] = json.loads(arguments[arguments.index("[") :])
        return words

    def variables(self) -> dict[str, str]:
        pairs = [word for arguments in self.of("ENV") for word in shlex.split(arguments)]
        return dict(pair.split("=", 1) for pair in pairs)


def instructions() -> list[tuple[str, str]]:
    """The instructions in their order, each on one line."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def arguments_before_stages() -> dict[str, str]:
    """The arguments that FROM may name, with their defaults."""
    found: dict[str, str] = {}
    for name, given in instructions():
        if name == "FROM":
            return found
        key, value = given.split("=", 1)
        found[key] = value
    return found


def stages() -> dict[str, Stage]:
    """The stages by name."""
    made: dict[str, Stage] = {}
    last: Stage | None = None
    for name, given in instructions():
        if name == "FROM":
            base, _, own = given.partition(" AS ")
            last = made[own] = Stage(own, base, [])
        elif last is not None:
            last.steps.append((name, given))
    return made
