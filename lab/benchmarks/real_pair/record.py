"""Records what a real target writes, for `lab.benchmarks.real_pair`.

Method. Each prompt of `lab.benchmarks.harness.kinds` is written twice: at temperature 0, and at 0.8 with a seed of its
own under the noise that drafters share. The texts of a kind are written together; a target's rows may depend on the
width of its passes in their last bits, so a text recorded alone may differ from one recorded with others.

    python -m lab.benchmarks.real_pair.record TARGET.gguf NAME [--texts 4] [--tokens 200]
"""

import argparse
from contextlib import closing
from pathlib import Path

from backends.registry import load
from gateway.openai_api.chat.template import Renderer
from lab.benchmarks.harness.kinds import CONTEXT, MOST_TOGETHER, prompts_by_kind, written
from lab.benchmarks.real_pair.recorded import FOLDER, RecordedText, write
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.sampling import Sampling

TEMPERATURES = (0.0, 0.8)


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
