"""How often a draft stands that went through text, beside the same model in the target's own vocabulary.

    .venv/bin/python -m benchmarks.translation

The target writes 12 prompts on, of 4 lines each, from files that the pair was not trained on, at temperatures 0 and
0.8. At every token each drafter says what it expects, knowing the text up to there: the share that is right is its
agreement. Draft models are the small draft and the target's twin; each as it is, with other ids for the same tokens
(translation, and nothing else), and with 1,500 of the 4,096 tokens (it then also writes in pieces that it was not
trained on, which a real model of another family would not have to). Also: passes of the draft model a token, and
milliseconds, one thread.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from backends.base import Backend, Entry, LoadOptions
from backends.registry import load
from benchmarks.harness import held_out_prompts
from benchmarks.report import Report, add_save
from drafters.base import Drafter
from drafters.draft_model import ModelDrafter
from drafters.translation import TranslatingDrafter
from models import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN
from models.renumbering import renumbered
from speculation.sampling.sampling import Sampling, choose

_PROMPTS = 12
_SMALLER = 1500


@contextmanager
def _model(path: Path) -> Iterator[Backend]:
    with closing(load("llama_cpp", LoadOptions(model=path, context_length=512, threads=1))) as backend:
        yield backend


def _continued(target: Backend, prompt: list[int], sampling: Sampling, count: int) -> list[int]:
    tokens, held = list(prompt), 0
    target.release(0)
    while len(tokens) < len(prompt) + count and tokens[-1] not in target.vocabulary.ends:
        row = target.extend([Entry(0, held, tokens[held:], len(tokens) - held - 1)])[0][0]
        held = len(tokens)
        tokens.append(choose(row, sampling, held))
    return tokens


def _line(name: str, backend: Backend, target: Backend, texts: list[tuple[int, list[int], Sampling]]) -> str:
    right = asked = passes = 0
    extend, began = backend.extend, time.perf_counter()

    def counted(batch: list[Entry]) -> object:
        nonlocal passes
        passes += 1
        return extend(batch)

    backend.extend = counted  # type: ignore[method-assign, assignment]
    for start, tokens, sampling in texts:
        backend.release(0)
        drafter: Drafter = ModelDrafter(backend, sampling)
        if backend.vocabulary.fingerprint != target.vocabulary.fingerprint:
            drafter = TranslatingDrafter(backend, target.vocabulary, sampling)
        for at in range(start, len(tokens)):
            right += drafter.expand(tokens[:at], [[]], False).predictions[0].token == tokens[at]
            asked += 1
    took = 1e3 * (time.perf_counter() - began)
    return f"{name:30} {right / asked:9.3f} {passes / asked:7.2f} {took / asked:6.2f}"


def main() -> None:
    """Run the comparison and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=128, help="of each text (default: %(default)s)")
    add_save(parser)
    options = parser.parse_args()
    report = Report("translation", options)
    with TemporaryDirectory() as folder, _model(DEFAULT_TARGET) as target:
        variants: list[tuple[str, Path]] = []
        for name, source in (("small draft", DEFAULT_DRAFT), ("twin", DEFAULT_TWIN)):
            other, fewer = Path(folder, f"{name}-ids.gguf"), Path(folder, f"{name}-fewer.gguf")
            renumbered(source, other)
            renumbered(source, fewer, size=_SMALLER)
            variants += [(name, source), (f"{name}, other ids", other), (f"{name}, {_SMALLER} tokens", fewer)]
        for temperature in (0.0, 0.8):
            report.line(f"temperature {temperature:<18} agreement  passes     ms")
            texts = []
            for number, text in enumerate(held_out_prompts(_PROMPTS)):
                prompt, sampling = target.vocabulary.encode(text), Sampling(number, temperature)
                texts.append((len(prompt), _continued(target, prompt, sampling, options.tokens), sampling))
            for name, path in variants:
                with _model(path) as backend:
                    report.line(_line(name, backend, target, texts))
    report.save()


if __name__ == "__main__":
    main()
