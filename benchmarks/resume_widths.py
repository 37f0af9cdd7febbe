"""What a text that is continued elsewhere owes to the width of the passes in which its tokens are read again.

Method. Texts of the shipped target, sampled, each alone in its engine. Each is written in passes
of one token, then continued at several cuts by a row that holds nothing: prompt and committed tokens are read again,
the `--last` of them in passes of a fixed width and what lies before in passes as wide as can be, and decoding goes on
to the end. A continued text is `the same` if no token differs; the figure behind is the median place, in tokens behind
the cut, of the first one that does, where one does. `to the first token` is the median CPU time from the start of
reading to the first token behind the cut (so that a busy machine does not count).

    python -m benchmarks.resume_widths [--texts 6] [--tokens 400] [--temperature 0.8] [--last 64 256] [--widths 8 63]
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import closing
from statistics import median

from backends.base import Backend, Entry, LoadOptions
from backends.registry import load
from benchmarks.harness import held_out_prompts
from benchmarks.report import Report, add_save
from models import DEFAULT_TARGET
from speculation.acceptance.strategies import common_prefix
from speculation.sampling.sampling import Sampling, choose

ALL = 1_000_000
CUTS = (0.25, 0.5, 0.75)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--last", type=int, nargs="+", default=[64, 256, ALL], help="tokens that are read so")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[1, 8, 32, 63, 64], help="of the passes that read them"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--deterministic", action="store_true", help="as VERIFIER_DETERMINISTIC=1 has it")
    add_save(parser)
    options = parser.parse_args()
    report = Report("resume_widths", options)
    settings = LoadOptions(
        model=DEFAULT_TARGET,
        rows=2,
        context_length=1024,
        threads=options.threads,
        deterministic=options.deterministic,
    )
    with closing(load("llama_cpp", settings)) as backend:
        texts = []
        for number, text in enumerate(held_out_prompts(options.texts)):
            prompt, sampling = backend.vocabulary.encode(text)[:100], Sampling(number, options.temperature)
            texts.append((prompt, sampling, _decoded(backend, prompt, 0, sampling, options.tokens)))
            backend.release(1)
        for tail in (0, *options.last):
            for width in options.widths if tail else (ALL,):
                report.line(_line(backend, texts, tail, width))
    report.save()


def _line(backend: Backend, texts: Sequence[tuple[list[int], Sampling, list[int]]], tail: int, width: int) -> str:
    same, count = 0, 0
    first, took = [], []
    for prompt, sampling, text in texts:
        for share in CUTS:
            cut = int(share * len(text))
            began = time.process_time()
            held = _read(backend, prompt, text[:cut], tail, width)
            continued = _decoded(backend, [*prompt, *text[:cut]], held, sampling, 1)
            took.append(1e3 * (time.process_time() - began))
            continued += _decoded(
                backend, [*prompt, *text[:cut], *continued], len(prompt) + cut, sampling, len(text) - cut - 1
            )
            backend.release(1)
            count += 1
            same += continued == text[cut:]
            if continued != text[cut:]:
                first.append(common_prefix(continued, text[cut:]))
    how = "all in wide passes" if not tail else f"the last {tail if tail < ALL else 'of all'} in passes of {width}"
    differs = f"differs behind {median(first):3.0f}" if first else ""
    return f"{how:32} same {same:3} of {count:3}   to the first token {median(took):6.1f} ms   {differs}"


def _read(backend: Backend, prompt: list[int], committed: list[int], tail: int, width: int) -> int:
    """Read all but the last token in row 1, the last `tail` of the committed ones in passes of `width`: how many."""
    tokens = [*prompt, *committed][:-1]
    narrow = max(len(prompt), len(tokens) - tail)
    at = 0
    while at < len(tokens):
        end = min(narrow, at + backend.max_batch_tokens) if at < narrow else min(len(tokens), at + width)
        backend.extend([Entry(1, at, tokens[at:end], end - at)])
        at = end
    return at


def _decoded(backend: Backend, tokens: list[int], held: int, sampling: Sampling, count: int) -> list[int]:
    """So many tokens behind `tokens`, of which row 1 holds the first `held`."""
    tokens, first = list(tokens), len(tokens)
    while len(tokens) < first + count:
        logits = backend.extend([Entry(1, held, tokens[held:], len(tokens) - held - 1)])[0][0]
        held = len(tokens)
        tokens.append(choose(logits, sampling, held))
    return tokens[first:]


if __name__ == "__main__":
    main()
