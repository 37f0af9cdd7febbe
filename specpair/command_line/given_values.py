"""Reads settings as a user writes them: lists of numbers in ascending order, such as "1,4,16", paths, and others."""

import os
from collections.abc import Sequence
from pathlib import Path


class SettingsError(Exception):
    """A setting is unknown or has a bad value. The message names its flag, its variable, or its file, table and key."""


def ascending(value: str | Sequence[int]) -> tuple[int, ...]:
    """The numbers of `value`: a text with commas, or the numbers themselves. Raises ValueError."""
    items = value.split(",") if isinstance(value, str) else value
    texts = [str(item).strip() for item in items]
    numbers = tuple(int(text) for text in texts if text.isdecimal())
    if not numbers or len(numbers) < len(texts) or numbers[0] < 1 or list(numbers) != sorted(set(numbers)):
        raise ValueError(f"{value!r} is not a list of ascending numbers such as 1,4,16")
    return numbers


def home(text: str) -> Path:
    """The path, with `~` as the home folder: a shell leaves it as it is in `--model=~/x.gguf` and in quotes."""
    return Path(os.path.expanduser(text))


def path(text: str) -> Path:
    """The path that a text names. Raises ValueError for an empty text: it would mean the current folder."""
    if not text:
        raise ValueError("is empty: name a file or a folder")
    return home(text)
