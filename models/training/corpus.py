"""The training corpus: which files the pair is trained on, their vocabulary, and the windows of tokens for training.

The corpus is the source of a Python standard library. Every machine that can run the recipe has one, and its licence
(PSF-2.0) allows this use. Random choices are made by a hash of the file's path, so that they are equal on all machines
and do not shift when another Python version adds or drops files.
"""

import argparse
import hashlib
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SMALLEST, LARGEST = 200, 300_000  # bytes: smaller files teach nothing, larger ones are tables
TEST_SHARE: Final = 0.55  # share of the test files to train on: they are half of the library, and much alike
_SKIPPED: Final = frozenset({"encodings", "pydoc_data", "site-packages", "__pycache__", "node_modules"})
_TEST_FOLDERS: Final = frozenset({"test", "tests", "idle_test"})

# Never trained on, neither for the shipped pair nor for a new one: prompts of measurements may come from these files.
HELD_OUT: Final = frozenset(
    {
        "_osx_support.py",
        "configparser.py",
        "ctypes/test/test_checkretval.py",
        "distutils/cmd.py",
        "distutils/tests/test_unixccompiler.py",
        "distutils/unixccompiler.py",
        "distutils/versionpredicate.py",
        "fractions.py",
        "idlelib/idle.py",
        "idlelib/searchengine.py",
        "importlib/machinery.py",
        "lib2to3/fixes/fix_tuple_params.py",
        "lib2to3/fixes/fix_xrange.py",
        "lib2to3/patcomp.py",
        "test/test_codecencodings_kr.py",
        "test/test_importlib/extension/test_loader.py",
        "test/test_modulefinder.py",
        "test/test_smtpd.py",
        "test/test_timeout.py",
        "test/test_tomllib/burntsushi.py",
        "test/test_unicode.py",
        "turtledemo/colormixer.py",
    }
)

BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
BEGIN_ID: Final = 0
END_ID: Final = 1
# Llama 3's split pattern. llama.cpp has it built in under the name "llama-bpe"; a GGUF file stores only the name.
SPLIT_PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class CorpusError(Exception):
    """The folder has too little source to train on. The message names it."""


@dataclass(frozen=True)
class Corpus:
    """The texts to train on and the held-out texts, each in order of path."""

    training: Sequence[str]
    held_out: Sequence[str]


def read_corpus(root: Path) -> Corpus:
    """Read the corpus from a standard library's folder. Raises CorpusError if either of its parts would be empty."""
    training: list[str] = []
    held_out: list[str] = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name in HELD_OUT:
            held_out.extend(_text(path))
        elif is_chosen(name) and SMALLEST <= path.stat().st_size <= LARGEST:
            training.extend(_text(path))
    if not training or not held_out:
        raise CorpusError(
            f"{root} is not a whole standard library: {len(training)} files to train on, {len(held_out)} held out"
            " (some systems ship the library in parts: name the folder of another Python with --source)"
        )
    return Corpus(training, held_out)


def is_chosen(name: str) -> bool:
    """Whether the recipe trains on the file of this path, relative to the library and with forward slashes."""
    folders = name.split("/")[:-1]
    if name in HELD_OUT or not _SKIPPED.isdisjoint(folders):
        return False
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64  # in [0, 1)
    return _TEST_FOLDERS.isdisjoint(folders) or share < TEST_SHARE


def windows(tokens: NDArray[np.uint16], length: int, batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches of int64 ids ``(batch, length + 1)`` forever: a row is a window of ``length`` ids and the next id.

    A pass over the text takes every window once, in random order. Each pass cuts the text at another offset, so that no
    token is always the first of its window. Windows that do not fill a batch are left out of the pass.

    Raises CorpusError if the text is too short for one batch.
    """
    if (len(tokens) - length) // length < batch:
        raise CorpusError(
            f"{len(tokens)} tokens do not fill a batch of {batch} windows of {length}: choose a smaller batch or length"
        )
    generator = np.random.default_rng(seed)
    while True:
        offset = int(generator.integers(length))
        starts = generator.permutation(np.arange(offset, len(tokens) - length, length))
        for first in range(0, len(starts) - batch + 1, batch):
            rows = [tokens[start : start + length + 1] for start in starts[first : first + batch]]
            yield np.stack(rows).astype(np.int64)


def train_tokenizer(texts: Sequence[str], size: int) -> Any:
    """Train a byte-level BPE (Sennrich et al., 2016) that splits text as Llama 3 does. Needs ``tokenizers``.

    It has at most ``size`` ids: begin, end, the 256 bytes, then merges by frequency.
    """
    from tokenizers import pre_tokenizers, trainers  # not needed for the rest

    tokenizer = _llama3()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_of(tokens: Sequence[str], merges: Sequence[str]) -> Any:
    """The tokenizer of a vocabulary that ``train_tokenizer`` made, from a GGUF file's lists. Needs ``tokenizers``."""
    pairs = [(first, second) for first, second in (merge.split(" ") for merge in merges)]
    return _llama3(vocab={token: index for index, token in enumerate(tokens)}, merges=pairs)


def _llama3(**model: Any) -> Any:
    """A byte-level BPE that splits text as Llama 3 does. ``model``: what the class ``BPE`` takes."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    # ignore_merges: a word with an id of its own is encoded as that id, as in llama.cpp with this pattern.
    tokenizer = Tokenizer(models.BPE(**model, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def encode_all(tokenizer: Any, texts: Iterable[str]) -> NDArray[np.uint16]:
    """The concatenated ids of all texts, each wrapped in begin and end."""
    parts = [[BEGIN_ID, *tokenizer.encode(text, add_special_tokens=False).ids, END_ID] for text in texts]
    return np.concatenate([np.asarray(part, dtype=np.uint16) for part in parts])


def _text(path: Path) -> Iterator[str]:
    """The text of a file, or nothing if it is not UTF-8."""
    with suppress(UnicodeDecodeError):  # a few files of the test suite have other encodings on purpose
        yield path.read_text(encoding="utf-8")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the flag ``--source``: the folder that `read_corpus` reads."""
    library = Path(sysconfig.get_path("stdlib"))
    text = "standard library to train on (default: that of this Python)"
    parser.add_argument("--source", type=Path, default=library, metavar="FOLDER", help=text)
