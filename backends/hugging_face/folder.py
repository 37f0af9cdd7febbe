"""Checks a model folder in Hugging Face layout and reads its name and JSON files, without any model library."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from specpair.engines.errors import ModelLoadError, NoGenerator
from specpair.engines.model_files import read_json

FOLDER = "a folder in Hugging Face layout"
# Classes of transformers without a causal head: encoders, classifiers, and the layers alone. GPT2LMHeadModel has one.
_HEADLESS = re.compile(
    r"(?<!LMHead)Model$|For(MaskedLM|PreTraining|QuestionAnswering|MultipleChoice|\w*Classification)$"
)


def check_folder(
    path: Path | None, engine: str, *, reads: str = FOLDER, weights: Sequence[str] = ("*.safetensors",)
) -> Path:
    """Return `path` if it is a model folder. Raises ModelLoadError, since libraries' own errors say little.

    `reads`: what the engine can read, in words.
    `weights`: patterns, one of which a file in the folder must match.
    """
    if path is None:
        raise ModelLoadError(f"the {engine} backend needs a model: {reads}")
    if not os.path.exists(path):  # unlike Path.exists, it accepts names that no file can have
        raise ModelLoadError(f"no such model: {path}: the {engine} backend reads {reads}")
    if not path.is_dir():
        raise ModelLoadError(f"{path} is a file: the {engine} backend reads {reads}")
    if not (path / "config.json").is_file():
        raise ModelLoadError(f"{path} is no model folder: it has no config.json")
    if not any(file for pattern in weights for file in path.glob(pattern)):
        raise ModelLoadError(
            f"{path} has no weights in {', '.join(weights)}: convert them with save_pretrained of transformers"
        )
    _check_generates(path)
    return path


def _check_generates(folder: Path) -> None:
    """Raises NoGenerator for a model that does not write a text token by token."""
    config = read_json(folder / "config.json")
    classes = [str(name) for name in config.get("architectures") or ()]
    if (folder / "modules.json").is_file():
        sign = "it has modules.json of sentence-transformers"
    elif config.get("is_encoder_decoder"):
        sign = "it is an encoder with a decoder"
    elif classes and all(_HEADLESS.search(name) for name in classes):
        sign = f"its class is {classes[0]}"
    else:
        return
    raise NoGenerator(str(folder), sign)


def model_name(path: Path) -> str:
    """The name of a model, after its file or folder: `config.json` can name the model from which it was made.

    In the cache of models by name, a folder is named by a commit, and the repository by the folder of all commits.
    """
    if path.is_file():
        return path.stem
    folder = path.resolve()
    return folder.parents[1].name.rpartition("--")[2] if folder.parent.name == "snapshots" else folder.name
