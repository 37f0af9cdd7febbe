"""Whether our texts at temperature 0 are llama-server's own, model by model.

Method. Four ways write the same prompts: llama-server (of the llama.cpp that our engine uses, `llama_server.build`) as
it is; llama-server with one token a pass and one kernel (`--ubatch-size 1 --no-repack`); our verifier alone; and with
the drafts of `--draft` (default: the model itself) and of lookup. In files of 4 to 6 bits, a logit depends on the
kernel, and this on how many tokens a pass reads: by up to 0.4 nats with Gemma 3 270M. Our verifier runs with
`deterministic`, which takes one kernel for all widths. So all ways but the first must agree in every token. Prompts
are `--lines` lines of held-out files: with 60, texts cross the window of 512 tokens that some layers of Gemma 3 see.
Printed: how many texts are those of llama-server with one kernel, and where others leave it, the gap in nats between
the two likeliest tokens of our logits.

    python -m lab.benchmarks.llama_server.same_text --target GEMMA.gguf [--draft DRAFT.gguf] [--prompts 9]
"""

from functools import partial
from pathlib import Path

from drafter_client import Mode
from lab.benchmarks.harness.models import CONTEXT, held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Way, by_turns
from lab.benchmarks.llama_server.build import built_or_exit, source_commit
from lab.benchmarks.llama_server.ours import margins, pairs, write
from lab.benchmarks.llama_server.server import complete, llama_server
from lab.benchmarks.llama_server.settings import ALONE, shared_flags
from lab.benchmarks.llama_server.summary import difference
from models import DEFAULT_TARGET

FLAGS = {
    "target": {"default": [str(DEFAULT_TARGET)], "help": "GGUF files (default: the target that ships)"},
    "draft": {"default": "", "help": "the draft model (default: the target itself)"},
    "prompts": {"default": 9, "help": "texts, at most 18 (default: %(default)s)"},
    "lines": {"default": [4, 60], "help": "of the prompts (default: both)"},
    "tokens": {"default": 64, "help": "of each text (default: %(default)s)"},
}
MODES = (Mode.TARGET, Mode.REMOTE)
ONE_KERNEL = "llama-server, one kernel"


def main() -> None:
    options = options_of(__doc__, FLAGS, "llama_cpp")
    program = built_or_exit()
    report = Report("same_text", options)
    report.line(f"# llama.cpp {source_commit()}")
    report.line(f"{'target':32} {'prompts of tokens':18} {'way':24} texts  equal  gaps in nats")
    for target in map(Path, options.target):
        flags = shared_flags(target, CONTEXT, 1)
        drafters = {"": Path(options.draft) if options.draft else target}
        with (
            llama_server(program, flags, speculates=False) as plain,
            llama_server(program, [*flags, "--ubatch-size", "1", "--no-repack"], speculates=False) as one_kernel,
            pairs(target, drafters, deterministic=True) as ours,
        ):
            [pair] = ours.values()
            ways: dict[str, Way[list[int]]] = {
                ONE_KERNEL: partial(complete, one_kernel, options.tokens, 0.0),
                ALONE: partial(complete, plain, options.tokens, 0.0),
            }
            ways |= {f"ours, {mode}": partial(write, pair, mode, options.tokens, 0.0) for mode in MODES}
            for lines in options.lines:
                prompts = [
                    pair.encode(prompt)[: CONTEXT - options.tokens]
                    for prompt in held_out_prompts(options.prompts, lines)
                ]
                texts = by_turns(ways, prompts)
                read = f"{min(map(len, prompts))} to {max(map(len, prompts))}"
                for way in ways:
                    differ = [
                        prompt + reference.tokens[:at]
                        for prompt, text, reference in zip(prompts, texts[way], texts[ONE_KERNEL], strict=True)
                        if (at := difference(text, reference)) is not None
                    ]
                    gaps = ", ".join(f"{gap:.3f}" for gap in sorted(margins(target, differ)))
                    equal = len(prompts) - len(differ)
                    report.line(f"{target.stem:32} {read:18} {way:24} {len(prompts):5}  {equal:5}  {gaps}")
    report.save()


if __name__ == "__main__":
    main()
