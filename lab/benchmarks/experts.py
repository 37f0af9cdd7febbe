"""Why drafts are shorter where the target has experts: a pass over more tokens reads more of its weights.

Method. Two models of random weights, in float32, with the same weights in use for one token: one with 64 experts of
which each token uses 8, one with a feed-forward layer as wide as 8 of them. One thread. Printed are the times of
passes, as `lab.benchmarks.verify_curve` takes them; the same as a verifier tells them to drafters when it has loaded
the model, over mixed tokens; and which draft length is best with these, by the rule of the drafter's controller, if
drafting costs no time and each draft token is accepted at the given rate. In random models, the tokens of a draft go to
experts that have nothing to do with each other; those of a trained model share some, so its curve lies between the two.

    python -m lab.benchmarks.experts [--seconds 20]
"""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from backends.registry import load
from backends.trial.tiny_architectures import Sizes, write_tiny_architecture
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.verify_curve.cells import Cell, Passes, measure, timings
from specpair.engines.backend import TopLogitsSpec
from specpair.engines.load_options import LoadOptions
from specpair.speculation.policy.draft_length import MAX_AUTO, prospects
from specpair.speculation.policy.schedule import LOCKSTEP
from specpair.speculation.policy.timing import LatencyModel
from verifier_server.engine.pass_time import pass_cost

EXPERTS = Sizes(hidden=1024, layers=2, heads=8, width=64, experts=64, used=8, expert_ffn=256)
MODELS = {  # architecture and sizes
    "experts": ("qwen3moe", EXPERTS),
    "dense": ("qwen3", replace(EXPERTS, ffn=EXPERTS.used * EXPERTS.expert_ffn)),
}
DRAFTS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
ACCEPTED = (0.5, 0.6, 0.7, 0.8, 0.9)
FLAGS = {"seconds": {"default": 20.0, "help": "to time passes for, for each model (default: %(default)s)"}}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("experts", options)
    with TemporaryDirectory() as folder:
        for name, (architecture, sizes) in MODELS.items():
            model = Path(folder) / f"{name}.gguf"
            write_tiny_architecture(architecture, model, sizes)
            report.line(f"\n{name}, {model.stat().st_size / 1e6:.0f} MB", *_curves(model, options.seconds))
            model.unlink()
    report.save()


def _curves(model: Path, seconds: float) -> list[str]:
    with closing(load("llama_cpp", LoadOptions(model, 1, 128, threads=1))) as backend:
        told = pass_cost(backend, time.perf_counter)
        passes = Passes(backend, 64, TopLogitsSpec(1, 1.0, backend.vocabulary.size))
        cells = [Cell(1, drafts) for drafts in DRAFTS]
        until = time.perf_counter() + seconds
        found = timings(measure(passes.seconds, cells, lambda rounds: rounds < 3 or time.perf_counter() < until))
    best = [prospects(LatencyModel(told), _chances(accepted), LOCKSTEP, 0.0).length for accepted in ACCEPTED]
    return [
        "  draft tokens             " + "".join(f"{drafts:7}" for drafts in DRAFTS),
        "  ms of a pass             " + "".join(f"{found[cell].ms:7.2f}" for cell in cells),
        "  times one decode step    " + "".join(f"{found[cell].ratio:7.2f}" for cell in cells),
        "  the same, as it is told  " + "".join(f"{told[drafts] / told[0]:7.2f}" for drafts in DRAFTS),
        "  accepted                 " + "".join(f"{accepted:7.0%}" for accepted in ACCEPTED),
        "  best draft length        " + "".join(f"{length:7}" for length in best),
    ]


def _chances(accepted: float) -> list[float]:
    return [accepted**drafts for drafts in range(MAX_AUTO + 2)]


if __name__ == "__main__":
    main()
