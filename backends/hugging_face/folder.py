"""A model folder in Hugging Face layout: what it must hold, its name and its JSON, without any library for models."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends.base import ModelLoadError

FOLDER = "a folder in Hugging Face layout"


def check_folder(
    path: Path | None, engine: str, *, reads: str = FOLDER, weights: Sequence[str] = ("*.safetensors",)
) -> Path:
    """`path` if it is a model folder: libraries say little of others. Raises ModelLoadError.

    `reads`: what the engine can read, in words. `weights`: patterns, one of which a file in the folder must match.
    """
    if path is None:
        raise ModelLoadError(f"the {engine} backend needs a model: {reads}")
    if not os.path.exists(path):  # unlike Path's, it bears with names that no file can have
        raise ModelLoadError(f"no such model: {path}: the {engine} backend reads {reads}")
    if not path.is_dir():
        raise ModelLoadError(f"{path} is a file: the {engine} backend reads {reads}")
    if not (path / "config.json").is_file():
        raise ModelLoadError(f"{path} is no model folder: it has no config.json")
    if not any(file for pattern in weights for file in path.glob(pattern)):
        raise ModelLoadError(
            f"{path} has no weights in {', '.join(weights)}: convert them with save_pretrained of transformers"
        )
    return path


def model_name(path: Path) -> str:
    """What to call the model of a file or folder: config.json may name another, that it was made from."""
    return path.stem if path.is_file() else path.resolve().name


def read_json(path: Path) -> dict[str, Any]:
    """A file that a model folder may have or not. Raises ModelLoadError for one that cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} is no readable JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} holds no JSON object")
    return content
