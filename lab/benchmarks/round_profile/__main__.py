"""Where the time of a round goes that is neither a pass, nor a draft step, nor the network.

Method. A verifier process whose target takes 25 ms a step, and a drafter in this process that takes 8 ms a token
(`lab.simulator.paced`), both real models, over loopback without a relay, as users get them. Both processes note moments
(`lab.benchmarks.round_profile.stamps`). Printed are the medians and the 90th percentiles of the ways between them, in
milliseconds. The last one, from a pass to the next draft, is what a round costs that no model computes: from the end
of a pass until the drafter knows its tokens, and from the decision on the first draft after that until the draft is
with the engine. It leaves out what lies between, draft steps and waiting until a draft is due.

    python -m lab.benchmarks.round_profile [--tokens 257] [--prompts 2]
"""

import math
import tempfile
from bisect import bisect
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from drafter_client.http.remote_vocabulary import check_vocabulary
from lab.benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter
from lab.benchmarks.harness.report import Report, options_of, plot
from lab.benchmarks.harness.texts import Writer, connected
from lab.benchmarks.round_profile.stamps import STAMPS, Stamps, read, watched
from lab.simulator.paced.engine import DRAFTER_8, TARGET_25, Paced
from specpair.child_processes.serving import verifier
from specpair.quantile import quantile

_AT_ONCE = 5e-3  # seconds; a step that begins later than that was not wanted before
_TO_NEXT = "a pass -> the next draft"
_OF_A_DRAFT = (  # the way of each draft and of its answer: between which moments
    ("pass over -> judged", "judged", "told"),
    ("judged -> the event loop has it", "told", "answered"),
    ("the event loop has it -> reply written", "answered", "written"),
    ("reply written -> drafter's thread has it", "written", "come"),
    ("drafter's thread has it -> takes it in", "come", "taken in"),
    ("draft decided -> request goes out", "decided", "sent"),
    ("request goes out -> the event loop has it", "sent", "arrived"),
    ("the event loop has it -> request read", "arrived", "read"),
    ("request read -> with the engine", "read", "submitted"),
)


def main() -> None:
    options = options_of(__doc__, {"tokens": 257, "prompts": 2}, "matplotlib")
    report = Report("round_profile", options)
    ways: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, closing(load_drafter(DRAFTERS["twin"])) as model:
        file = Path(folder) / "stamps"
        settings = {"PACED_TARGET": TARGET_25, "threads": 1, "context": CONTEXT, STAMPS: file}
        with (
            verifier("lab.benchmarks.round_profile.stamps:application()", **settings) as server,
            connected(server.url) as client,
        ):
            info = check_vocabulary(client, model.vocabulary, model.model_name)
            writer = Writer(client, options.tokens, 1.0)
            for seed, prompt in enumerate(held_out_prompts(options.prompts)):
                with watched() as ours:
                    writer.paired(Paced(model, DRAFTER_8), info, model.vocabulary.encode(prompt), seed)
                _add(ways, ours, read(file.read_text(encoding="utf-8")))
    percentiles = {
        name: [1e3 * quantile(taken, share) for share in (0.5, 0.9)] for name, taken in ways.items() if taken
    }
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


def _add(ways: dict[str, list[float]], ours: Stamps, theirs: Stamps) -> None:
    """Add up one text: the drafter's moments and the verifier's."""
    overs = sorted(theirs["over"].values())
    moments = {**theirs, **{what: ours[what] for what in ("come", "taken in", "decided", "sent")}}
    for way, start, end in _OF_A_DRAFT:
        ways[way] += [moments[end][draft] - at for draft, at in moments[start].items() if draft in moments[end]]
    for draft, at in theirs["submitted"].items():
        begun = theirs["begun"].get(draft)
        if begun is not None and bisect(overs, at) == bisect(overs, begun):  # no pass was running
            ways["with the engine that is idle -> pass begun"].append(begun - at)
    known = {place: at - theirs["over"][place] for place, at in ours["known"].items() if place in theirs["over"]}
    ways["pass over -> drafter knows it"] += known.values()
    for place, took in known.items():
        following = [
            draft for draft, at in ours["decided"].items() if draft[0] == place and draft in theirs["submitted"]
        ]
        if following:
            draft = min(following, key=ours["decided"].__getitem__)
            ways[_TO_NEXT].append(took + theirs["submitted"][draft] - ours["decided"][draft])
    for number, ended in ours["drafted"].items():
        following_step = ours["begun"].get(number + 1, math.inf) - ended
        if following_step < _AT_ONCE:
            ways["draft step ended -> next one begun"].append(following_step)
    ways[_TO_NEXT] = ways.pop(_TO_NEXT)  # the last line


if __name__ == "__main__":
    main()
