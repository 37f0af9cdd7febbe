"""What a real target writes, recorded once, so that other machines and links can be tried with these texts.

Method. Each prompt of `lab.benchmarks.harness.kinds` is written twice: at temperature 0, and at 0.8 with a seed of its
own under the noise that drafters share. The texts of a kind are written together; a target's rows may depend on the
width of its passes in their last bits, so a text recorded alone may differ from one recorded with others.

    python -m lab.benchmarks.real_pair.record TARGET.gguf NAME [--texts 4] [--tokens 200]
"""

import argparse
import gzip
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from backends.registry import load
from gateway.openai_api.chat.template import Renderer
from lab.benchmarks.harness.kinds import CONTEXT, MOST_TOGETHER, prompts_by_kind, written
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.sampling import Sampling

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
