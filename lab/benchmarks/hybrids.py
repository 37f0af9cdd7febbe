"""What speculation brings on recurrent and hybrid models, where rejected tokens cost more: on texts that repeat or not.

Method. A tiny random model of each architecture, padded to 40 ms a pass and 2 % of it a further token, is the target;
tokens that are read again after a rejection take as long as others (`lab.simulator.paced.llama`), so they are paid for.
Drafts are looked up in the text (`ngram`), on loopback. Each text is written by the target alone and by the pair, in
turns. With one slot, architectures that keep the states of the last tokens (`n_rs_seq`) may take back tokens by
themselves; with several, states are copied. Tiny states are copied at once: what copying larger ones takes is not in
these figures.

repeats     temperature 0, and tokens that depend on little but the last one: the text soon goes in a circle
in part     the same model at temperature 0.2: it leaves the circle now and then, so some tokens of a draft are accepted
fails       temperature 0.8, and tokens that depend on all before: the text does not repeat, and drafts fail

    python -m lab.benchmarks.hybrids [--slots 1] [--architectures lfm2] [--tokens 128]
"""

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from backends.trial.tiny_architectures import RECURRENT, write_tiny_architecture
from lab.benchmarks.harness.models import BRANCHES
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, alone, by_turns, connected, paired, rate, table
from lab.simulator.paced.engine import TARGET_80
from specpair.child_processes.serving import verifier
from specpair.drafters.lookup import NgramDrafter

TARGET_40 = TARGET_80.dilated(0.5)


class Kind(NamedTuple):
    """A kind of text."""

    circles: bool  # whether each token depends on little but the one before it
    temperature: float
    least: float  # times the target alone that the pair must reach


KINDS = {"repeats": Kind(True, 0.0, 1.3), "in part": Kind(True, 0.2, 0.98), "fails": Kind(False, 0.8, 0.98)}
# As for `write_tiny_architecture`. Without feed-forward layers, a model with less would repeat one token.
MIXING = {"mamba2": 0.2}
USUAL_MIXING = 0.01
PROMPTS = [[7, 9, 11, 50, 60], [90, 14, 33, 201, 8]]
FLAGS = {
    "architectures": {"default": list(RECURRENT), "choices": RECURRENT},
    "slots": {"default": 4, "help": "of the verifier (default: %(default)s)"},
    "tokens": {"default": 128, "help": "of a text (default: %(default)s)"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report, slots = Report("hybrids", options, f"hybrids_{options.slots}"), options.slots
    with TemporaryDirectory() as folder:
        for architecture, (name, kind) in product(options.architectures, KINDS.items()):
            mixing = MIXING.get(architecture, USUAL_MIXING) if kind.circles else 1.0
            model = Path(folder) / f"{architecture}-{mixing}.gguf"
            write_tiny_architecture(architecture, model, mixing=mixing)
            written = _written(model, slots, kind, options.tokens)
            report.line(f"\n{architecture}, {slots} slot{'s' * (slots > 1)}, {name}", *table(written))
            reached = rate(written["ngram"]) / rate(written["target"])
            report.line(f"  {'reached' if reached >= kind.least else 'MISSED'}: {reached:.3f} of {kind.least}")
    report.save()


def _written(model: Path, slots: int, kind: Kind, tokens: int) -> dict[str, list[Written]]:
    paced = {"PACED_TARGET": TARGET_40, "backend": "llama_cpp", "threads": 1}
    with (
        verifier("lab.simulator.paced.engine:app", model=model, slots=slots, context=512, **paced) as server,
        connected(server.url) as client,
    ):
        round_trip, info = client.ping(), client.model()

        def request(seed: int) -> dict[str, float]:
            return {"max_tokens": tokens, "temperature": kind.temperature, "seed": seed}

        def target(prompt: list[int], seed: int) -> Written:
            return alone(client, prompt, request(seed))

        def pair(prompt: list[int], seed: int) -> Written:
            return paired(client, NgramDrafter(BRANCHES), prompt, request(seed), info, round_trip=round_trip)

        return by_turns({"target": target, "ngram": pair}, PROMPTS)


if __name__ == "__main__":
    main()
