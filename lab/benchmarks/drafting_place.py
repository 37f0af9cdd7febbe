"""Where the draft model runs on one box: in the verifier, beside the target (mode fused), or at the drafter (remote).

Method. A verifier serves the target on one thread, with the draft model on another; the drafter's own draft model has
one thread, too. So on two cores each has a core of its own, and only one of the draft models runs at a time. Texts of
`--tokens` tokens at `--temperature` are written in turns, in another order for each prompt: by the target alone, fused,
and remote. Code and stories to be continued. Tokens per second after the first token, by one client's clock.

    python -m lab.benchmarks.drafting_place --target BF16.gguf --draft SMALL.gguf [--texts 3] [--tokens 64]
"""

from dataclasses import replace
from functools import partial

from drafter_client import DraftModel, Mode, Options, Pair
from lab.benchmarks.first_run import CODE, STORY, prompts_of
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library, by_turns, rate, table
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier
from specpair.engines.load_options import LoadOptions

_MODES = (Mode.TARGET, Mode.FUSED, Mode.REMOTE)
FLAGS = {
    "target": {"default": str(DEFAULT_TARGET), "help": "GGUF file (default: the target that ships)"},
    "draft": {"default": str(DEFAULT_DRAFT), "help": "GGUF file (default: the small one that ships)"},
    "texts": {"default": 3, "help": "of each kind (default: %(default)s)"},
    "repeats": 1,
    "tokens": {"default": 64, "help": "of each text (default: %(default)s)"},
    "temperature": 0.0,
    "context": 2048,
    "kinds": {"default": [CODE, STORY], "choices": (CODE, STORY)},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "llama_cpp")
    report = Report("drafting_place", options)
    engine = {"model": options.target, "threads": 1, "slots": 2, "context": options.context}
    source = DraftModel(options.draft, engine=LoadOptions(threads=1, context_length=options.context))
    with (
        verifier(**engine, draft_model=options.draft, draft_slots=1, draft_threads=1) as server,
        Pair(server.url, source) as pair,
    ):
        chosen = {
            mode: Options(max_tokens=options.tokens, temperature=options.temperature, mode=mode) for mode in _MODES
        }
        for mode in _MODES:  # engines make ready what they need
            by_library(pair, "x", chosen[mode])
        for kind in options.kinds:
            ways = {str(mode): partial(_written, pair, chosen[mode]) for mode in _MODES}
            written = by_turns(ways, prompts_of(kind, pair, options.texts), options.repeats)
            rates = {mode: rate(texts) for mode, texts in written.items()}
            report.line(kind, *table(written), f"  fused is {rates['fused'] / rates['remote']:.2f} times remote", "")
    report.save()


def _written(pair: Pair, options: Options, prompt: list[int], seed: int) -> Written:
    return by_library(pair, prompt, replace(options, seed=seed))


if __name__ == "__main__":
    main()
