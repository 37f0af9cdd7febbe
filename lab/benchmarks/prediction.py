"""Tokens per second with and without a prediction of the text, in which another name stands throughout.

Method. A verifier process serves the target padded until a step takes `--step-ms` here, on one thread. Behind each of
`--texts` held-out prompts the target writes its text (one seed each). The prediction is that text with its most
frequent name changed: as the file before the edit, to the target that writes the file after it. Ways take turns text
by text: the target alone; the pair with the small draft that ships, without and with the prediction; lookup in place of
the draft, likewise; and mode fused with the prediction, on that verifier without a draft model. Rates count from the
first token known here to the last.

    python -m lab.benchmarks.prediction [--tokens 256] [--texts 4]
"""

from functools import partial
from typing import Any

from drafter_client import DraftModel, Lookup, Mode, Options, Pair
from lab.benchmarks.harness.models import CONTEXT, held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library, by_turns, table
from lab.benchmarks.lookup.tasks import frequent_name, renamed
from lab.simulator.paced.padded_target import padded_target
from specpair.child_processes.serving import verifier

FLAGS = {"tokens": 256, "texts": 4, "temperature": 0.8, "step-ms": 40.0}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("prediction", options)
    model = padded_target(options.step_ms)
    with (
        verifier(model=model, threads=1, slots=2, context=CONTEXT) as server,
        Pair(server.url, DraftModel()) as pair,
        Pair(server.url, Lookup()) as lookup,
    ):
        same: dict[str, Any] = {"max_tokens": options.tokens, "temperature": options.temperature}
        prompts = held_out_prompts(options.texts)
        alone = [pair.generate(each, Options(seed=seed, mode=Mode.TARGET, **same)) for seed, each in enumerate(prompts)]
        predictions = {prompt: before_edit(text.read().text) for prompt, text in zip(prompts, alone, strict=True)}

        def write(pair: Pair, mode: Mode, predicted: bool, prompt: str, seed: int) -> Written:
            prediction = predictions[prompt] if predicted else None
            return by_library(pair, prompt, Options(seed=seed, mode=mode, prediction=prediction, **same))

        ways = {
            "target": partial(write, pair, Mode.TARGET, False),
            "small": partial(write, pair, Mode.REMOTE, False),
            "small, prediction": partial(write, pair, Mode.REMOTE, True),
            "ngram": partial(write, lookup, Mode.REMOTE, False),
            "ngram, prediction": partial(write, lookup, Mode.REMOTE, True),
            "fused, prediction": partial(write, pair, Mode.FUSED, True),
        }
        written = by_turns(ways, prompts)
        report.line(*table(written))
        for way, texts in written.items():
            if (taken := sum(text.stats.prediction_accepted for text in texts)) > 0:
                rejected = sum(text.stats.prediction_rejected for text in texts)
                report.line(f"  {way:26} {taken} tokens of the prediction accepted, {rejected} rejected")
    report.save()


def before_edit(text: str) -> str:
    """`text` with its most frequent name changed."""
    name = frequent_name(text)
    return renamed(text, name, f"old_{name}")


if __name__ == "__main__":
    main()
