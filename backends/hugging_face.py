"""A model folder in Hugging Face layout: its checks, its name, and the vocabulary of its `tokenizer.json`.

The vocabulary's bytes, classes, begin and end ids equal those that llama.cpp reads from a GGUF file of the same model,
so that a drafter on one engine has the fingerprint of a verifier on another.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specpair.engines.errors import ModelLoadError, NoGenerator
from specpair.engines.model_files import listed, named_ends, read_json, read_tokens
from specpair.engines.vocabulary import Kind, Vocabulary

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
    """Raises NoGenerator for a model that does not generate token by token."""
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
    """The model's name from its file or folder, since `config.json` may name the model that it derives from.

    In the cache of models by name, a folder is named by a commit, and the repository by the folder of all commits.
    """
    if path.is_file():
        return path.stem
    folder = path.resolve()
    return folder.parents[1].name.rpartition("--")[2] if folder.parent.name == "snapshots" else folder.name


class HfVocabulary(Vocabulary):
    """Reads each token's bytes and class once; encodes with the library `tokenizers`."""

    def __init__(
        self,
        text: str,
        *,
        size: int,
        begin: int | None,
        ends: frozenset[int],
        end: int | None = None,
        adds_begin: bool | None = None,
    ) -> None:
        """`text`: contents of a tokenizer.json.
        `size`: ids in the embedding table; those without a token are unused.
        `begin`: id of the begin token.
        `ends`: ids of end tokens that the model states; the names of tokens can add others.
        `end`: the end token that chat templates write.
        `adds_begin`: whether a prompt starts with the begin token; None: as the tokenizer does it, or always if it does
            not say.

        Raises ModelLoadError.
        """
        from tokenizers import Tokenizer  # here: the checks do without the library

        content = json.loads(text)
        self._plain = Tokenizer.from_str(text)
        ids: dict[str, int] = self._plain.get_vocab(with_added_tokens=True)
        if begin is not None and not 0 <= begin < size:
            raise ModelLoadError(f"bos_token_id is {begin}, and the model has ids 0 to {size - 1}")
        if max(ids.values()) >= size:
            raise ModelLoadError(f"the tokenizer has ids up to {max(ids.values())}, the model only {size}")
        pieces, kinds = listed(content, ids, size)
        stated = frozenset(token for token in ends if 0 <= token < size)
        super().__init__(pieces, kinds, begin, stated | named_ends(ids), end)
        for each in content.get("added_tokens", ()):  # mark our control tokens, which may differ from the tokenizer's
            each["special"] = kinds[each["id"]] != Kind.ORDINARY
        self._plain = Tokenizer.from_str(json.dumps(content))
        self._parsing = Tokenizer.from_str(json.dumps(content))
        self._plain.encode_special_tokens = True  # control tokens spelled out in a text are encoded as text
        self._adds_begin = _adds_begin(self._parsing, content, begin) if adds_begin is None else adds_begin

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        encoder = self._parsing if parse_control else self._plain
        ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        return [self.begin, *ids] if add_begin and self._adds_begin and self.begin is not None else ids


def read_vocabulary(folder: Path, size: int) -> HfVocabulary:
    """Read the vocabulary of the model in `folder`, whose embedding table has `size` ids. Raises ModelLoadError.

    `tokenizer.json` may be in the folder or, where a model pair shares it, in the folder's parent.
    """
    stated = read_tokens(folder)
    text, begin, ends, end, adds_begin = stated[1:]
    try:
        return HfVocabulary(text, size=size, begin=begin, ends=ends, end=end, adds_begin=adds_begin)
    except ModelLoadError as error:
        raise ModelLoadError(f"{stated.path}: {error}") from None
    except ModuleNotFoundError:
        raise
    except Exception as error:  # the library raises plain exceptions
        raise ModelLoadError(f"{stated.path} is no tokenizer that can be read: {error}") from error


def _adds_begin(tokenizer: Any, content: Mapping[str, Any], begin: int | None) -> bool:
    """Whether the tokenizer starts a text with the begin token; true if it has no rule for that."""
    if content.get("post_processor") is None:
        return True
    return begin in tokenizer.encode("a").ids[:1]
