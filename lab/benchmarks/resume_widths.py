"""How a continued text depends on the width of the passes in which its tokens are read again.

Method. Texts of the shipped target, each alone in its engine and written in passes of one token, are continued at
several cuts in an empty slot: prompt and committed tokens are read again, the `--last` of them in passes of a fixed
width and those before in passes as wide as can be. `same`: no token of the continued text differs; `differs behind`:
the median place of the first that does. `to the first token`: median CPU time from the start of reading to the first
token behind the cut.

    python -m lab.benchmarks.resume_widths [--texts 6] [--tokens 400] [--temperature 0.8] [--last 64 256]
"""

import itertools
import time
from collections.abc import Sequence
from contextlib import closing
from statistics import median

from backends.registry import load
from lab.benchmarks.harness.models import CONTEXT, decoded, held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from models import DEFAULT_TARGET
from specpair.engines.backend import Backend, Entry
from specpair.engines.load_options import LoadOptions
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling

ALL = 1_000_000
CUTS = (0.25, 0.5, 0.75)
FLAGS = {
    **{"texts": 6, "tokens": 400, "temperature": 0.8},
    "last": {"default": [64, 256, ALL], "help": "tokens that are read in passes of a fixed width"},
    "widths": {"default": [1, 8, 32, 63, 64], "help": "of the passes that read them"},
    "deterministic": {"default": False, "help": "as with VERIFIER_DETERMINISTIC=1"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("resume_widths", options)
    engine = LoadOptions(
        model=DEFAULT_TARGET, slots=2, context_length=CONTEXT, threads=1, deterministic=options.deterministic
    )
    with closing(load("llama_cpp", engine)) as backend:
        texts = []
        for number, text in enumerate(held_out_prompts(options.texts)):
            prompt, sampling = backend.vocabulary.encode(text)[:100], Sampling(number, options.temperature)
            texts.append((prompt, sampling, decoded(backend, 1, prompt, 0, sampling, options.tokens)))
            backend.release(1)
        for tail in (0, *options.last):
            for width in options.widths if tail else (ALL,):
                report.line(_line(backend, texts, tail, width))
    report.save()


def _line(backend: Backend, texts: Sequence[tuple[list[int], Sampling, list[int]]], tail: int, width: int) -> str:
    first, took = [], []
    for (prompt, sampling, text), share in itertools.product(texts, CUTS):
        cut = int(share * len(text))
        before, after = [*prompt, *text[:cut]], text[cut:]
        began = time.process_time()
        held = _read(backend, prompt, text[:cut], tail, width)
        continued = decoded(backend, 1, before, held, sampling, 1)
        took.append(1e3 * (time.process_time() - began))
        continued += decoded(backend, 1, before + continued, len(before), sampling, len(after) - 1)
        backend.release(1)
        if continued != after:
            first.append(common_prefix(continued, after))
    how = "all in wide passes" if not tail else f"the last {tail if tail < ALL else 'of all'} in passes of {width}"
    differs = f"differs behind {median(first):3.0f}" if first else ""
    same = f"same {len(took) - len(first):3} of {len(took):3}"
    return f"{how:32} {same}   to the first token {median(took):6.1f} ms   {differs}"


def _read(backend: Backend, prompt: list[int], committed: list[int], tail: int, width: int) -> int:
    """Read all but the last token into slot 1, the last `tail` committed ones in passes of `width`; their number."""
    tokens = [*prompt, *committed][:-1]
    narrow = max(len(prompt), len(tokens) - tail)
    at = 0
    while at < len(tokens):
        end = min(narrow, at + backend.max_batch_tokens) if at < narrow else min(len(tokens), at + width)
        backend.extend([Entry(1, at, tokens[at:end], end - at)])
        at = end
    return at


if __name__ == "__main__":
    main()
