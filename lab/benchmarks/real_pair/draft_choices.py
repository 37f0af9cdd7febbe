"""What a real draft model would choose behind a recorded text and any continuation of it.

Each is computed once, with the noise of the text, and kept in `.cache/real_pair/`: the same continuations come up on
all machines and links that are tried. Behind tokens that the target did not write the model may be left unasked, which
saves hours: nothing that it chooses there can be accepted. Then its choices there are made up, and as likely as those
at that place of the text.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from backends.registry import load
from lab.benchmarks.harness.kinds import CONTEXT
from lab.benchmarks.harness.report import ROOT
from lab.benchmarks.real_pair.recorded import RecordedText
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.load_options import LoadOptions
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling, choose_several, probabilities

KEPT = 6  # choices that are known at each place, the best first
_PASS = 64  # tokens
_NO_IDS, _MADE_UP = 1 << 20, 4096  # ids beyond any vocabulary, and how many of them are made up
_FOLDER = ROOT / ".cache" / "real_pair"


class Choices(NamedTuple):
    """The ids that score best under the noise of the text, the best first, and their probabilities."""

    ids: list[int]
    probabilities: list[float]


class DraftModel:
    """A real draft model, loaded when it is first asked for something that is not known."""

    def __init__(self, path: Path, recording: str, *, asks_all: bool = True) -> None:
        """`recording`: the name of the recording that it is asked about.
        `asks_all`: whether it is asked behind tokens, too, that the target did not write.
        """
        self.path, self._folder, self.asks_all = path, _FOLDER / f"{recording}_{path.stem}", asks_all
        self._backend: Backend | None = None

    @contextmanager
    def text(self, number: int, text: RecordedText) -> Iterator["TextChoices"]:
        """A context that yields the choices about text `number` of the recording, and then keeps what is new."""
        path = self._folder / f"{number}.json.gz"
        known = json.loads(gzip.decompress(path.read_bytes())) if path.is_file() else {}
        choices = TextChoices(self, text, known)
        count = len(known)
        try:
            yield choices
        finally:
            if len(known) > count:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(gzip.compress(json.dumps(known).encode()))

    @property
    def backend(self) -> Backend:
        if self._backend is None:
            self._backend = load("llama_cpp", LoadOptions(model=self.path, context_length=CONTEXT, slots=1, threads=1))
        return self._backend

    @property
    def ends(self) -> frozenset[int]:
        """Ids of the end tokens, of the target too: the two share a vocabulary."""
        return frozenset(self.backend.vocabulary.ends)

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()


class TextChoices:
    """The choices about one text."""

    def __init__(self, model: DraftModel, text: RecordedText, known: dict[str, list[list[float]]]) -> None:
        """`known`: the choices by place, which grow."""
        self._model, self._sampling, self._known = model, text.sampling, known
        self._prompt, self._whole = len(text.prompt), [*text.prompt, *text.written.tokens]
        self._held: list[int] | None = None  # what the draft model's slot holds; None: another text, perhaps

    def after(self, length: int, tail: Sequence[int]) -> Choices:
        """The choices behind the first `length` tokens of the recorded text, the prompt's included, and `tail`."""
        right = common_prefix(self._whole[length:], tail)
        length, tail = length + right, tail[right:]
        if tail and not self._model.asks_all:
            return self._made_up(length, tail)
        place = f"{length - self._prompt}:{','.join(map(str, tail))}"
        if place not in self._known:
            if not tail:
                self._read_all()
            else:
                self._known[place] = self._ask(self._whole[:length], tail)
        ids, probabilities = self._known[place]
        return Choices([int(each) for each in ids], probabilities)

    def _made_up(self, length: int, tail: Sequence[int]) -> Choices:
        place = max(min(length + len(tail), len(self._whole) - 1), self._prompt)
        first = zlib.crc32(repr((length, *tail)).encode()) % _MADE_UP
        ids = [_NO_IDS + (first + rank) % _MADE_UP for rank in range(KEPT)]
        return Choices(ids, self.after(place, ()).probabilities)

    def _read_all(self) -> None:
        """Have the draft model read the recorded text, for the choices behind each part of it."""
        backend, whole = self._model.backend, self._whole
        backend.release(0)
        for at in range(0, len(whole), _PASS):
            part = whole[at : at + _PASS]
            skipped = min(max(self._prompt - 1 - at, 0), len(part))
            rows = backend.extend([Entry(0, at, part, skipped)])[0]
            for offset, row in enumerate(rows, at + skipped + 1):
                self._known[f"{offset - self._prompt}:"] = best(row, self._sampling, offset)
        self._held = [*whole]

    def _ask(self, text: Sequence[int], tail: Sequence[int]) -> list[list[float]]:
        if self._held is None:
            self._read_all()
        assert self._held is not None
        tokens = [*text, *tail]
        start = min(common_prefix(self._held, tokens), len(tokens) - 1)
        row = self._model.backend.extend([Entry(0, start, tokens[start:], len(tokens) - start - 1)])[0][0]
        self._held = tokens
        return best(row, self._sampling, len(tokens))


def best(row: Logits, sampling: Sampling, position: int) -> list[list[float]]:
    """The ids that score best at `position`, the best first, and their probabilities."""
    ids = choose_several(row, sampling, position, KEPT)
    return [list(map(float, ids)), [round(each, 5) for each in probabilities(row, ids, sampling)]]
