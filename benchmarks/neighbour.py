"""A drafter's rate beside one that sends random drafts, over its rate beside one that drafts nothing.

virtual   the real scheduler in virtual time (`simulation.neighbour`), by target: 25 ms a pass and 2 % of it a
          further token, and one whose further tokens are dear (a third of a pass each)
real      the real server with the model that ships, or one padded until a step takes `--step-ms`; one thread each.
          The drafter is `Pair` with the small draft model (*drafter*) or without (*target*). Beside it a process
          sends requests as fast as it can. Each of `--texts` prompts is written beside both kinds, in turns.

python -m benchmarks.neighbour [--forms virtual real] [--target default|padded] [--save]
"""

import argparse
import random
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.harness.children import child
from benchmarks.harness.models import held_out_prompts, padded_target
from benchmarks.harness.report import Report, options_of
from benchmarks.harness.serving import verifier
from drafter_client import DraftModel, LoadOptions, Mode, Options, Pair
from models import DEFAULT_TARGET
from simulation.capacity import Setting
from simulation.neighbour import BESIDE, DRAFTS, rate
from simulation.paced import DRAFTER_8, TARGET_25, Cost

TARGETS = {"25 ms": TARGET_25, "25 ms, dear drafts": Cost(25.0, 8.0, 2.0)}
_TEXT = 400  # tokens of each text of the one beside
_BESIDE = "import sys; from benchmarks.neighbour import send; send(sys.argv[1], int(sys.argv[2]))"
FLAGS = {
    "forms": {"default": ["virtual", "real"], "choices": ("virtual", "real")},
    "target": {"default": "default", "choices": ("default", "padded")},
    **{"step-ms": 25.0, "texts": 8},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "httpx")
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
    with verifier(model=model, threads=1, rows=4, context=2048) as server:
        for form, draft in (("target", None), ("drafter", DraftModel(engine=LoadOptions(threads=1)))):
            with Pair(server.url, draft) as pair:
                wanted = Options(max_tokens=128, mode=Mode.TARGET if draft is None else Mode.REMOTE)
                rates = _by_turns(pair, wanted, server.url, options.texts)
            _tell(report, f"real, {options.target}, {form}, beside junk", rates["junk"], rates["plain"])


def _by_turns(pair: Pair, wanted: Options, url: str, texts: int) -> dict[str, float]:
    """Tokens per second beside each kind, over the same texts."""
    tokens, seconds = {"plain": 0, "junk": 0}, {"plain": 0.0, "junk": 0.0}
    for number, prompt in enumerate(held_out_prompts(texts)):
        for beside in sorted(tokens, reverse=number % 2 == 0):  # a machine that becomes slower is fair to both
            with _beside(url, 0 if beside == "plain" else DRAFTS):
                started = time.perf_counter()
                tokens[beside] += len(pair.generate(prompt, wanted).read().token_ids)
                seconds[beside] += time.perf_counter() - started
    return {beside: tokens[beside] / seconds[beside] for beside in tokens}


@contextmanager
def _beside(url: str, drafts: int) -> Iterator[None]:
    """Run `send` in a process of its own while the block lasts."""
    with child("-c", _BESIDE, url, str(drafts), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has a session
        yield


def send(url: str, drafts: int) -> None:
    """Send so many random drafts, and again as soon as the response is there, until the process is ended."""
    import httpx

    rng = random.Random(0)
    with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as client:
        while True:
            opened = {"session_id": uuid.uuid4().hex, "prompt": "def main():", "max_tokens": _TEXT}
            reply = client.post("/prefill", json=opened).raise_for_status().json()
            print("session opened", flush=True)
            while reply["finish_reason"] is None:
                draft = [rng.randrange(100, 1000) for _ in range(drafts)]
                verify = {"session_id": opened["session_id"], "position": reply["total_tokens"], "draft_tokens": draft}
                reply = client.post("/verify", json=verify).raise_for_status().json()
            client.delete(f"/sessions/{opened['session_id']}")


def _tell(report: Report, what: str, junk: float, plain: float) -> None:
    report.line(f"{what}: {junk:.1f} tokens/s, {junk / plain:.3f} of the {plain:.1f} beside a plain one")


if __name__ == "__main__":
    main()
