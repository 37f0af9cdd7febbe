"""Tokens per second of a target with a head (MTP), drafted for by the head, beside llama-server with the same file.

Method. A verifier with `draft = head` and several llama-servers (compiled first) serve one file, all on this machine
with the same threads. Each prompt, from files that every Python has, is written in each way, in another order for each:
by the target alone (modes `target`, llama-server without speculation), and with drafts of the head (mode `fused`,
llama-server's `--spec-type draft-mtp` for each of `--drafts`). Printed for each temperature: the tokens per second
behind the first token of each way, the acceptance rate, and `fused` over the best of llama-server. Then `--together`
texts at once, in modes `target` and `fused` by turns: the tokens per second of all of them together, and the ratio.

Without `--model`, the file is the default target with its head, padded to `--layers` more layers and MLPs that are
`--width` times as wide, so that a pass reads as much as in a larger model. The text stays that of the default target.

    python -m lab.benchmarks.head_rates [--model MODEL.gguf] [--drafts 1 2 3] [--texts 6] [--tokens 128]
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx

from drafter_client import Mode, Options, Pair
from lab.benchmarks.harness.models import held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Way, Written, by_library, by_turns, rate
from lab.benchmarks.real_pair.llama_server import ALONE, built, complete, llama_server, shared_flags
from models.heads import make_heavy_model
from specpair.child_processes.serving import verifier

FLAGS = {
    "model": {"metavar": "FILE", "help": "a GGUF file with a head (default: the default target, padded)"},
    "drafts": [1, 2, 3],
    "temperatures": [0.0, 0.8],
    **{"texts": 6, "tokens": 128, "together": 4, "repeats": 3, "threads": 2, "layers": 24, "width": 16},
}
CONTEXT = 1024
MODES = (Mode.TARGET, Mode.FUSED)


def main() -> None:
    options = options_of(__doc__, FLAGS, "llama_cpp")
    report = Report("head_rates", options)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(options.model or Path(folder, "heavy.gguf"))
        if not options.model:
            make_heavy_model(path, options.layers, options.width)
        report.line(f"file: {path.stat().st_size / 2**20:.0f} MiB")
        settings = {"model": path, "draft": "head", "slots": options.together, "context": CONTEXT}
        server = stack.enter_context(verifier(**settings, threads=options.threads))
        pair = stack.enter_context(Pair(server.url, None, texts=options.together))
        theirs = {ALONE: stack.enter_context(_llama_server(path, options.threads))}
        for length in options.drafts:
            flags = ("--spec-type", "draft-mtp", "--spec-draft-n-max", str(length))
            theirs[f"draft-mtp {length}"] = stack.enter_context(_llama_server(path, options.threads, *flags))
        prompts = [pair.encode(text) for text in held_out_prompts(options.texts)]
        for temperature in options.temperatures:
            ways: dict[str, Way[list[int]]] = {
                str(mode): partial(_ours, pair, mode, options.tokens, temperature) for mode in MODES
            }
            ways |= {name: partial(_theirs, each, options.tokens, temperature) for name, each in theirs.items()}
            _show(report, by_turns(ways, prompts), temperature)
        rates = {mode: list[float]() for mode in MODES}
        for _, mode in ((repeat, mode) for repeat in range(options.repeats) for mode in MODES):
            rates[mode].append(_together(pair, mode, prompts[: options.together], options.tokens))
        alone, fused = (median(rates[mode]) for mode in MODES)
        report.line(
            f"{options.together} texts at once: {alone:.2f} tokens/s by the target alone, {fused:.2f} by the "
            f"head, {fused / alone:.3f}"
        )
    report.save()


def _llama_server(path: Path, threads: int, *flags: str) -> AbstractContextManager[httpx.Client]:
    return llama_server(built()[0], [*shared_flags(path, CONTEXT, threads), *flags], speculates=bool(flags))


def _ours(pair: Pair, mode: Mode, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    options = Options(max_tokens=tokens, temperature=temperature, seed=seed, mode=mode).cold()
    return by_library(pair, prompt, options)


def _theirs(client: httpx.Client, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    return complete(client, tokens, temperature, prompt, seed)


def _show(report: Report, written: dict[str, list[Written]], temperature: float) -> None:
    rates = {name: rate(texts) for name, texts in written.items()}
    for name, texts in written.items():
        stats = [text.stats for text in texts]
        drafted, accepted = sum(each.drafted for each in stats), sum(each.accepted for each in stats)
        count = sum(len(text.tokens) - 1 for text in texts)
        drafts = f", {accepted / drafted:.2f} accepted, {count / (count - accepted):.2f} a pass" if drafted else ""
        report.line(f"T {temperature}: {name:12} {rates[name]:7.2f} tokens/s{drafts}")
    ours = [str(mode) for mode in MODES]
    same = sum(one.tokens == other.tokens for one, other in zip(*(written[name] for name in ours), strict=True))
    best = max(rates[name] for name in rates if name not in ours)
    report.line(
        f"T {temperature}: fused over llama-server's best {rates[ours[1]] / best:.3f}, over the target alone "
        f"{rates[ours[1]] / rates[ours[0]]:.2f}; {same} of {len(written[ours[0]])} texts are the target's"
    )


def _together(pair: Pair, mode: Mode, prompts: Sequence[list[int]], tokens: int) -> float:
    """Tokens per second of all texts together, prompts included."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as threads:
        texts = [*threads.map(lambda prompt: _ours(pair, mode, tokens, 0.0, prompt, 0), prompts)]
    return sum(len(text.tokens) for text in texts) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
