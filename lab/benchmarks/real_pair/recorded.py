"""What a real target wrote once, kept in a file, so that other machines and links can be tried with these texts."""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specpair.speculation.sampling.sampling import Sampling

FOLDER = Path(__file__).with_name("recordings")


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
