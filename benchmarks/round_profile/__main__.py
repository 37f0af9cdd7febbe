"""Where the time of a round goes that is neither a pass, nor a draft step, nor the network.

Method. A verifier process whose target takes 25 ms a step, and a drafter in this process that takes 8 ms a token
(`simulator.paced`), both real models, over loopback without a relay, as users get them. Both processes note moments
(`benchmarks.round_profile.stamps`). Printed are the medians and the 90th percentiles of the ways between them, in
milliseconds.

    python -m benchmarks.round_profile [--tokens 257] [--prompts 2]
"""

import json
import math
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter
from benchmarks.harness.report import Report, options_of, plot
from benchmarks.harness.texts import Writer, connected
from benchmarks.round_profile.stamps import STAMPS, Stamps, watched
from drafter_client.http.remote_vocabulary import check_vocabulary
from simulator.paced.engine import DRAFTER_8, TARGET_25, Paced
from specpair.child_processes.serving import verifier
from specpair.quantile import quantile

_AT_ONCE = 5e-3  # seconds; a step that begins later than that was not wanted before


def main() -> None:
    options = options_of(__doc__, {"tokens": 257, "prompts": 2}, "matplotlib")
    report = Report("round_profile", options)
    ways: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, closing(load_drafter(DRAFTERS["twin"])) as model:
        file = Path(folder) / "stamps"
        settings = {"PACED_TARGET": TARGET_25, "threads": 1, "context": CONTEXT, STAMPS: file}
        with (
            verifier("benchmarks.round_profile.stamps:application()", **settings) as server,
            connected(server.url) as client,
        ):
            info = check_vocabulary(client, model.vocabulary, model.model_name)
            writer = Writer(client, options.tokens, 1.0)
            for seed, prompt in enumerate(held_out_prompts(options.prompts)):
                with watched() as ours:
                    writer.paired(Paced(model, DRAFTER_8), info, model.vocabulary.encode(prompt), seed)
                theirs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
                file.write_text("", encoding="utf-8")
                _add(ways, ours, theirs)
    percentiles = {name: [1e3 * quantile(taken, share) for share in (0.5, 0.9)] for name, taken in ways.items()}
    for name, (p50, p90) in percentiles.items():
        report.line(f"{name:44} {len(ways[name]):5} times  p50 {p50:6.2f}  p90 {p90:6.2f}")
    report.save()
    with plot(report.beside(".png")) as [[axes]]:
        for place, label in ((1, "p90"), (0, "p50")):  # the shorter bars over the longer ones
            axes.barh(list(percentiles), [each[place] for each in percentiles.values()], label=label)
        axes.tick_params(axis="y", labelsize=6)
        axes.invert_yaxis()
        axes.set(xlabel="ms")
        axes.legend(fontsize=6)


def _add(ways: dict[str, list[float]], ours: Stamps, theirs: list[list[Any]]) -> None:
    """Add up one text: `theirs` are the verifier's moments, each [what, which, when]."""
    by_place: Stamps = defaultdict(dict)
    for what, which, when in theirs:
        by_place[what].setdefault(tuple(which) if isinstance(which, list) else which, when)
    for place, over in by_place["over"].items():
        ways["pass over -> judged and told"].append(by_place["told"][place] - over)
        if place in ours["taken in"]:
            ways["pass over -> drafter takes it in"].append(ours["taken in"][place] - over)
    for place, taken in ours["taken in"].items():
        ways["takes it in -> knows it"].append(ours["known"][place] - taken)
    for draft, decided in ours["decided"].items():
        if draft in by_place["submitted"]:
            ways["draft decided -> with the engine"].append(by_place["submitted"][draft] - decided)
    for number, ended in ours["drafted"].items():
        following = ours["begun"].get(number + 1, math.inf) - ended
        if following < _AT_ONCE:
            ways["draft step ended -> next one begun"].append(following)


if __name__ == "__main__":
    main()
