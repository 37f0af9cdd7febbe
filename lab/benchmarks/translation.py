"""How often a draft token that was translated is accepted, beside the same model in the target's own vocabulary.

Method. The target continues 12 held-out prompts at temperatures 0 and 0.8. At every token each drafter, knowing the
text up to there, says what it expects: the share that equals the target's token is its agreement. Draft models are the
small draft and the target's twin, each as it is, with other ids for the same tokens, and with 1,500 of the 4,096 tokens
(it then also writes in pieces that it was not trained on, which a real model of another family would not have to).
Printed: agreement, passes of the draft model a token, milliseconds a token, on one thread.

    python -m lab.benchmarks.translation [--tokens 128]
"""

import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from backends.registry import load
from lab.benchmarks.harness.models import decoded, held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from lab.simulator.paced.renumbering import renumbered
from models import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN
from specpair.drafters.base import Drafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.translation import TranslatingDrafter
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.sampling import Sampling

_PROMPTS = 12
_SMALLER = 1500
Text = tuple[int, list[int], Sampling]  # length of the prompt, all tokens


def main() -> None:
    options = options_of(__doc__, {"tokens": {"default": 128, "help": "of each text (default: %(default)s)"}})
    report = Report("translation", options)
    with TemporaryDirectory() as folder, closing(_load(DEFAULT_TARGET)) as target:
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
                target.release(0)
                written = decoded(target, 0, prompt, 0, sampling, options.tokens)
                end = next((at + 1 for at, token in enumerate(written) if token in target.vocabulary.ends), None)
                texts.append((len(prompt), prompt + written[:end], sampling))
            for name, path in variants:
                with closing(_load(path)) as backend:
                    report.line(_line(name, backend, target, texts))
    report.save()


def _load(path: Path) -> Backend:
    return load("llama_cpp", LoadOptions(model=path, context_length=512, threads=1))


def _line(name: str, backend: Backend, target: Backend, texts: list[Text]) -> str:
    right = asked = passes = 0
    extend, began = backend.extend, time.perf_counter()

    def counted(batch: list[object]) -> object:
        nonlocal passes
        passes += 1
        return extend(batch)  # type: ignore[arg-type]

    backend.extend = counted  # type: ignore[method-assign, assignment]
    for start, tokens, sampling in texts:
        backend.release(0)
        drafter: Drafter = ModelDrafter(backend, sampling)
        if backend.vocabulary.fingerprint != target.vocabulary.fingerprint:
            drafter = TranslatingDrafter(backend, target.vocabulary, sampling)
        for at in range(start, len(tokens)):
            right += drafter.expand(tokens[:at], [[]], False).proposals[0].token == tokens[at]
            asked += 1
    took = 1e3 * (time.perf_counter() - began)
    return f"{name:30} {right / asked:9.3f} {passes / asked:7.2f} {took / asked:6.2f}"


if __name__ == "__main__":
    main()
