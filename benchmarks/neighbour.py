"""What a drafter has left beside one that sends junk, over what it has beside one that drafts nothing.

    virtual   the real scheduler in virtual time (`simulation.neighbour`), by target: 25 ms a pass and 2 % of
              it a further token, and one whose further tokens are dear (a third of a pass each)
    real      the real server with the model that ships, or one padded until a step costs `--step-ms`; one thread each.
              The neighbour is `Pair` with the small draft model (*drafter*) or without (*target*). Beside it a process
              of its own asks over HTTP, as fast as it can. Each of `--texts` prompts is written beside both kinds,
              in turns; the ratio is of all tokens over all seconds.

Wanted: 0.85 of what it has beside one that drafts nothing.

    python -m benchmarks.neighbour [--forms virtual real] [--target default|padded] [--save]
"""

import argparse
import json
import random
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.children import child
from benchmarks.extras import need
from benchmarks.harness import held_out_prompts, padded_target, verifier
from benchmarks.report import Report, add_save
from drafter_client import DraftModel, LoadOptions, Mode, Options, Pair
from models import DEFAULT_TARGET
from simulation.capacity import Setting
from simulation.neighbour import BESIDE, DRAFTS, rate
from simulation.paced import DRAFTER_8, TARGET_25, Cost

WANTED = 0.85
TARGETS = {"25 ms": TARGET_25, "25 ms, dear drafts": Cost(25.0, 8.0, 2.0)}
_TEXT = 400  # tokens of each text of the one beside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", nargs="+", choices=("virtual", "real"), default=["virtual", "real"])
    parser.add_argument("--target", choices=("default", "padded"), default="default")
    parser.add_argument("--step-ms", type=float, default=25.0)
    parser.add_argument("--texts", type=int, default=8)
    add_save(parser)
    parser.add_argument("--beside", help=argparse.SUPPRESS)  # this process is the one beside, for the server there
    parser.add_argument("--drafts", type=int, default=DRAFTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    need("httpx")
    if options.beside is not None:
        send(options.beside, options.drafts)
        return
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
        for beside in sorted(tokens, reverse=number % 2 == 0):  # a machine that gets slower is fair to both
            with _beside(url, 0 if beside == "plain" else DRAFTS):
                started = time.perf_counter()
                tokens[beside] += len(pair.generate(prompt, wanted).read().token_ids)
                seconds[beside] += time.perf_counter() - started
    return {beside: tokens[beside] / seconds[beside] for beside in tokens}


@contextmanager
def _beside(url: str, drafts: int) -> Iterator[None]:
    """Somebody asks there, in a process of its own, while the block lasts."""
    command = ["-m", "benchmarks.neighbour", "--beside", url, "--drafts", str(drafts)]
    with child(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has a session
        yield


def send(url: str, drafts: int) -> None:
    """Send so many random drafts, and again as soon as the answer is there, for ever."""
    import httpx

    rng, headers = random.Random(0), {"Content-Type": "application/json"}
    with httpx.Client(base_url=url, timeout=60.0, headers=headers, trust_env=False) as client:
        while True:
            opened = {"session_id": uuid.uuid4().hex, "prompt": "def main():", "max_tokens": _TEXT}
            reply = client.post("/prefill", content=json.dumps(opened)).raise_for_status().json()
            print("asking", flush=True)
            while reply["finish_reason"] is None:
                guess = {
                    "session_id": opened["session_id"],
                    "position": reply["total_tokens"],
                    "draft_tokens": [rng.randrange(100, 1000) for _ in range(drafts)],
                }
                reply = client.post("/verify", content=json.dumps(guess)).raise_for_status().json()
            client.delete(f"/sessions/{opened['session_id']}")


def _tell(report: Report, what: str, junk: float, plain: float) -> None:
    verdict = "reached" if junk / plain >= WANTED else "NOT REACHED"
    report.line(f"{verdict}: {what}: {junk:.1f} tokens/s, {junk / plain:.3f} of the {plain:.1f} beside a plain one")


if __name__ == "__main__":
    main()
