"""Recorded texts of a real target, and the choices of a real draft model for them.

Method. Each prompt of `lab.benchmarks.harness.kinds` is written twice: at temperature 0, and at 0.8 with a seed of its
own under the noise that drafters share. The texts of a kind are written together; a target's rows may depend on the
width of its passes in their last bits, so a text recorded alone may differ from one recorded with others.

The draft model reads each text once, with the noise of the text. Behind tokens that the target did not write it is not
asked: nothing that it chooses there can be accepted. Its choices there are made up, and as likely as those at that
place of the text.

    python -m lab.benchmarks.real_pair.recording TARGET.gguf NAME [--texts 4] [--tokens 200]
"""

import argparse
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from backends.registry import load
from gateway.openai_api.chat.template import Renderer
from lab.benchmarks.harness.kinds import CONTEXT, MOST_TOGETHER, prompts_by_kind, written
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.load_options import LoadOptions
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling, choose_several, probabilities

FOLDER = Path(__file__).with_name("recordings")
TEMPERATURES = (0.0, 0.8)


@dataclass(frozen=True)
class RecordedText:
    """A text of a real target. `prompt`, `tokens`: ids."""

    kind: str
    prompt: list[int]
    sampling: Sampling
    tokens: list[int]


def write(path: Path, model: str, texts: Iterable[RecordedText]) -> None:
    """Write the texts that `model` wrote, one in a line, gzipped. The same texts give the same bytes."""
    lines = [json.dumps({"model": model})]
    for text in texts:
        sampled = {"temperature": text.sampling.temperature, "seed": text.sampling.seed}
        told = {"kind": text.kind, "prompt": text.prompt, **sampled, "tokens": text.tokens}
        lines.append(json.dumps(told, separators=(",", ":")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), mtime=0))


def read(path: Path) -> Iterator[RecordedText]:
    """The texts of a file that `write` wrote."""
    _, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    for told in map(json.loads, lines):
        sampling = Sampling(temperature=told["temperature"], seed=told["seed"])
        yield RecordedText(told["kind"], told["prompt"], sampling, told["tokens"])


KEPT = 6  # choices that are known at each place, the best first
_PASS = 64  # tokens
_NO_IDS, _MADE_UP = 1 << 20, 4096  # ids beyond any vocabulary, and how many of them are made up


class DraftChoices(NamedTuple):
    """The ids that score best under the noise of the text, the best first, and their probabilities."""

    ids: list[int]
    probabilities: list[float]


class TextChoices:
    """The choices about one text."""

    def __init__(self, text: RecordedText, choices: Sequence[DraftChoices]) -> None:
        """`choices`: for each token of the text, the draft model's choices behind all tokens before it."""
        self._prompt, self._whole, self._choices = len(text.prompt), [*text.prompt, *text.tokens], choices

    @property
    def agrees(self) -> list[bool]:
        """For each of the target's tokens, whether the draft model, given all tokens before, chooses it too."""
        tokens = self._whole[self._prompt :]
        return [each.ids[0] == token for each, token in zip(self._choices, tokens, strict=True)]

    def after(self, length: int, tail: Sequence[int]) -> DraftChoices:
        """The choices behind the first `length` tokens of the recorded text, the prompt's included, and `tail`."""
        right = common_prefix(self._whole[length:], tail)
        length, tail = length + right, tail[right:]
        place = min(max(length + len(tail), self._prompt), len(self._whole) - 1)
        known = self._choices[place - self._prompt]
        if not tail and length < len(self._whole):
            return known
        first = zlib.crc32(repr((length, *tail)).encode()) % _MADE_UP
        return DraftChoices([_NO_IDS + (first + rank) % _MADE_UP for rank in range(KEPT)], known.probabilities)


def choices_of(draft: Backend, text: RecordedText) -> TextChoices:
    """The draft model's choices behind each prefix of the text, which it reads in slot 0."""
    whole, prompt, found = [*text.prompt, *text.tokens], len(text.prompt), list[DraftChoices]()
    draft.release(0)
    for at in range(0, len(whole) - 1, _PASS):
        part = whole[at : min(at + _PASS, len(whole) - 1)]
        skipped = min(max(prompt - 1 - at, 0), len(part))
        rows = draft.extend([Entry(0, at, part, skipped)])[0]
        found += [best(row, text.sampling, position) for position, row in enumerate(rows, at + skipped + 1)]
    return TextChoices(text, found)


def best(row: Logits, sampling: Sampling, position: int) -> DraftChoices:
    """The choices at `position`."""
    ids = choose_several(row, sampling, position, KEPT)
    return DraftChoices(list(map(int, ids)), [round(each, 5) for each in probabilities(row, ids, sampling)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, help="GGUF file")
    parser.add_argument("name", help="of the recording")
    parser.add_argument("--texts", type=int, default=4, help="of each kind (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=200, help="of each text, at most (default: %(default)s)")
    options = parser.parse_args()
    texts: list[RecordedText] = []
    target = load("llama_cpp", LoadOptions(model=options.target, context_length=CONTEXT, slots=MOST_TOGETHER))
    with closing(target), closing(Renderer()) as renderer:
        for kind, prompts in prompts_by_kind(target, renderer, options.texts):
            asked = [
                (prompt, Sampling(temperature=temperature, seed=len(texts) + number))
                for temperature in TEMPERATURES
                for number, prompt in enumerate(prompts)
            ]
            told = written(target, [prompt for prompt, _ in asked], options.tokens, [each for _, each in asked])
            texts += [RecordedText(kind, *each, tokens) for each, tokens in zip(asked, told, strict=True)]
            print(f"{kind:12}{len(texts)} texts so far", flush=True)
    path = FOLDER / f"{options.name}.jsonl.gz"
    write(path, options.target.stem, texts)
    print(f"{len(texts)} texts in {path}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
