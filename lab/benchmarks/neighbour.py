"""A drafter's rate beside one that sends random drafts, over its rate beside one that drafts nothing.

virtual   the real scheduler in virtual time (`lab.simulator.known_outputs`), by target: 25 ms a pass and 2 % of it a
          further token, and one whose further tokens are dear (a third of a pass each)
real      the real server with the model that ships, or one padded until a step takes `--step-ms`; one thread each.
          The drafter is `Pair` with the small draft model (*drafter*) or without (*target*). Beside it a process
          sends requests as fast as it can. Each of `--texts` prompts is written beside both kinds, in turns. Rates
          count prompts.

python -m lab.benchmarks.neighbour [--forms virtual real] [--target default|padded] [--save]
"""

import argparse
import random
import subprocess
from functools import partial

from drafter_client import DraftModel, LoadOptions, Mode, Options, Pair
from drafter_client.generation.text_session import TextSession
from lab.benchmarks.harness.models import held_out_prompts
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library, by_turns, connected, whole_rate
from lab.simulator.costs.linear import LinearCost
from lab.simulator.known_outputs.capacity_clients import Setting
from lab.simulator.known_outputs.neighbour import BESIDE, DRAFTS, rate
from lab.simulator.paced.engine import DRAFTER_8, TARGET_25
from lab.simulator.paced.padded_target import padded_target
from models import DEFAULT_TARGET
from specpair.child_processes.children import child
from specpair.child_processes.serving import verifier
from specpair.speculation.draft import Draft

TARGETS = {"25 ms": TARGET_25, "25 ms, dear drafts": LinearCost(25.0, 8.0, 2.0)}
KINDS = {"plain": 0, "junk": DRAFTS}  # random drafts in a request
_TEXT = 400  # tokens of each text of the one beside
_BESIDE = "import sys; from lab.benchmarks.neighbour import send; send(sys.argv[1], *map(int, sys.argv[2:]))"
FLAGS = {
    "forms": {"default": ["virtual", "real"], "choices": ("virtual", "real")},
    "target": {"default": "default", "choices": ("default", "padded")},
    **{"step-ms": 25.0, "texts": 8},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("neighbour", options)
    if "virtual" in options.forms:
        _virtual(report)
    if "real" in options.forms:
        _real(report, options)
    report.save()


def _virtual(report: Report) -> None:
    for name, target in TARGETS.items():
        setting = Setting(target, DRAFTER_8, warm_up=2.0, seconds=20.0)
        for form in ("target", "k=4", "ours"):
            rates = {beside: rate(form, beside, setting) for beside in BESIDE}
            for beside, plain in (("junk", "plain"), ("junk, 16", "plain"), ("junk, new", "plain, new")):
                _tell(report, f"virtual, {name}, {form}, beside {beside}", rates[beside], rates[plain])
            report.line(f"             beside another of its form {rates['honest']:.1f}")


def _real(report: Report, options: argparse.Namespace) -> None:
    model = DEFAULT_TARGET if options.target == "default" else padded_target(options.step_ms)
    with verifier(model=model, threads=1, slots=4, context=2048) as server:
        for form, draft in (("target", None), ("drafter", DraftModel(engine=LoadOptions(threads=1)))):
            with Pair(server.url, draft) as pair:
                wanted = Options(max_tokens=128, mode=Mode.TARGET if draft is None else Mode.REMOTE)
                ways = {kind: partial(_beside, server.url, pair, wanted, drafts) for kind, drafts in KINDS.items()}
                texts = by_turns(ways, held_out_prompts(options.texts))
            rates = {kind: whole_rate(each) for kind, each in texts.items()}
            _tell(report, f"real, {options.target}, {form}, beside junk", rates["junk"], rates["plain"])


def _beside(url: str, pair: Pair, wanted: Options, drafts: int, prompt: str, _seed: int) -> Written:
    """A text that is written while `send` runs in a process of its own."""
    with child(
        "-c", _BESIDE, url, str(drafts), *map(str, pair.encode("def main():")), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has a session
        return by_library(pair, prompt, wanted)


def send(url: str, drafts: int, *prompt: int) -> None:
    """Send so many random drafts, and again as soon as the response is there, until the process is ended."""
    rng = random.Random(0)
    with connected(url) as client:
        while True:
            text = TextSession(list(prompt))
            opened = client.prefill(text, {"max_tokens": _TEXT})
            print("session opened", flush=True)
            position, ended = len(prompt) + len(opened.tokens), opened.finish_reason
            while ended is None:
                reply = client.verify(
                    text.session_id, Draft.chain(position, [rng.randrange(100, 1000) for _ in range(drafts)])
                )
                position, ended = position + len(reply.tokens), reply.finish_reason
            client.release(text.session_id)


def _tell(report: Report, what: str, junk: float, plain: float) -> None:
    report.line(f"{what}: {junk:.1f} tokens/s, {junk / plain:.3f} of the {plain:.1f} beside a plain one")


if __name__ == "__main__":
    main()
