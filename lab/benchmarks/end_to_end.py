"""Tokens per second of the default pair with real compute: fixed draft lengths, automatic ones, and the target alone.

Method. A verifier process, one thread, serves the default target padded until a step takes `--step-ms` here; this
process drafts, one thread, over loopback. Each held-out prompt (one seed each) is written by turns by the pair in
lockstep with each of `--lengths`, in lockstep with as many drafts as pay (`lockstep`), as users get it (`auto`), and by
the target alone (`/generate`). Each text begins knowing what the verifier says its passes cost, and nothing of the text
or the drafter. Rates count prompts. What a pass costs by its tokens is measured first, before the verifier runs.

    python -m lab.benchmarks.end_to_end [--tokens 128] [--prompts 4] [--repeats 2]
    python -m lab.benchmarks.end_to_end --drafters twin --temperatures 0 --lengths 3 5 7 --skip 6 --prompts 12  # a part
"""

import itertools
from contextlib import closing
from functools import partial
from typing import Any

from drafter_client.http.remote_vocabulary import check_vocabulary
from lab.benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Writer, by_turns, connected, table, whole_rate
from lab.simulator.paced.padded_target import padded_target, step_ms
from specpair.child_processes.serving import verifier
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms

FLAGS = {
    **{"tokens": 128, "prompts": 4, "repeats": 2, "step-ms": 30.0, "temperatures": [0.0, 0.8]},
    "skip": {"default": 0, "help": "prompts to leave out at the beginning"},
    "drafters": {"default": list(DRAFTERS), "choices": DRAFTERS},
    "lengths": {"default": list(range(1, 9)), "help": "fixed draft lengths"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("end_to_end", options)
    target = padded_target(options.step_ms)
    for name, in_turn in (("same width again", False), ("another width each time", True)):
        curve = step_ms(target, widths=range(1, 10), in_turn=in_turn)
        costs = "  ".join(f"{width}: {ms:.1f}" for width, ms in curve.items())
        report.line(f"verify cost, ms by tokens in the pass, {name}: {costs}")
    pairs: dict[str, dict[str, Any]] = {f"k={k}": {"draft_n": k, "mechanisms": LOCKSTEP} for k in options.lengths}
    pairs |= {"lockstep": {"mechanisms": LOCKSTEP}, "auto": {"mechanisms": Mechanisms()}}
    with verifier(model=target, threads=1, slots=2, context=CONTEXT) as server, connected(server.url) as client:
        for name, temperature in itertools.product(options.drafters, options.temperatures):
            with closing(load_drafter(DRAFTERS[name])) as model:
                info = check_vocabulary(client, model.vocabulary, model.model_name)
                prompts = map(model.vocabulary.encode, held_out_prompts(options.skip + options.prompts)[options.skip :])
                writer = Writer(client, options.tokens, temperature)
                ways = {way: partial(writer.paired, model, info, **how) for way, how in pairs.items()}
                written = by_turns({**ways, "target": writer.alone}, prompts, options.repeats)
            report.line(f"\n{name}, temperature {temperature:g}", *table(written, whole_rate))
            rates = {way: whole_rate(texts) for way, texts in written.items()}
            best = max((f"k={k}" for k in options.lengths), key=rates.__getitem__)
            shares = ", ".join(f"{way} {rates[way] / rates[best]:.3f}" for way in ("lockstep", "auto"))
            report.line(f"  of the best fixed ({best}): {shares}")
    report.save()


if __name__ == "__main__":
    main()
