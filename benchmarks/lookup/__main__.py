"""What drafts that are looked up in the text bring: alone, and where a draft model does not pay.

Method. The target writes given texts at a large model's pace (`benchmarks.lookup.reciting`: 25 ms a pass): the small
models here cannot be told to edit, and what a model does that can is known beforehand. Prompts and texts are those of
`benchmarks.lookup.tasks`. Drafters are `ngram` and the small draft that ships, paced to 8 ms a token and to 25 ms, as
much as the target's pass, both with `--no-lookup` and with the default; its agreement with these texts is its own. A
relay adds the round-trip time. Rates count from the first token known here to the last, all tokens of a kind over all
their seconds, as multiples of what the target alone streams over the same link, text by text in turn.

    python -m benchmarks.lookup [--rtt 5] [--tokens 200]
"""

import json
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.models import BRANCHES, CONTEXT, load_drafter
from benchmarks.harness.relay import relay
from benchmarks.harness.report import Report, options_of
from benchmarks.harness.serving import verifier
from benchmarks.harness.texts import Written, alone, paired, rate
from benchmarks.lookup.tasks import tasks
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.http.client import VerifierClient
from drafters.draft_model import ModelDrafter
from drafters.lookup import NgramDrafter
from models import DEFAULT_DRAFT
from simulation.paced import DRAFTER_8, TARGET_25, Cost, Paced
from speculation.sampling.sampling import Sampling

SLOW = DRAFTER_8.dilated(25.0 / 8.0)
WAYS: dict[str, tuple[Cost | None, bool]] = {  # the draft model's cost, and whether drafts are looked up
    "ngram": (None, False),
    "small, 8 ms, --no-lookup": (DRAFTER_8, False),
    "small, 8 ms": (DRAFTER_8, True),
    "small, 25 ms, --no-lookup": (SLOW, False),
    "small, 25 ms": (SLOW, True),
}
FLAGS = {
    "rtt": {"default": 5.0, "help": "milliseconds (default: %(default)s)"},
    "tokens": {"default": 200, "help": "of a text, at most (default: %(default)s)"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    sys.setswitchinterval(SWITCH_INTERVAL)
    report = Report("lookup", options)
    written: dict[str, dict[str, list[Written]]] = defaultdict(lambda: defaultdict(list))  # by kind, then by way
    wrong: set[tuple[str, str]] = set()
    with closing(load_drafter(DEFAULT_DRAFT)) as model, TemporaryDirectory() as folder:
        todo = tasks(model.vocabulary, options.tokens)
        texts = Path(folder, "texts.json")
        texts.write_text(json.dumps([[*task.prompt, *task.answer] for task in todo]), encoding="utf-8")
        settings = {"RECITED": texts, "PACED_TARGET": TARGET_25, "context": CONTEXT, "rows": 2}
        with (
            verifier("benchmarks.lookup.reciting:application()", **settings) as server,
            relay(server.url, options.rtt) as url,
            closing(VerifierClient(url)) as client,
        ):
            client.wait_until_ready()
            client.ping()
            info = client.model()
            for task in todo:
                request = {"max_tokens": len(task.answer), "temperature": 0.0, "seed": 0}
                by_way = {"target": alone(client, task.prompt, request)}
                for way, (cost, lookup) in WAYS.items():
                    model.release(0)
                    drafter = ModelDrafter(Paced(model, cost), Sampling()) if cost else NgramDrafter(BRANCHES)
                    by_way[way] = paired(client, drafter, task.prompt, request, info, lookup=lookup)
                for way, text in by_way.items():
                    written[task.kind][way].append(text)
                    wrong |= {(task.kind, way)} if text.tokens != task.answer else set()
    for kind, ways in written.items():
        report.line(f"\n{kind}")
        for way, each in ways.items():
            drafted, accepted, found = (
                sum(getattr(text.stats, name) for text in each) for name in ("drafted", "accepted", "looked_up")
            )
            drafts = f"  {drafted:4} drafted, {accepted:4} accepted, {found:4} looked up" if drafted else ""
            note = "  NOT THE TEXT" if (kind, way) in wrong else ""
            multiple = rate(each) / rate(ways["target"])
            report.line(f"  {way:26} {rate(each):6.1f} tokens/s  {multiple:.2f}x{drafts}{note}")
    report.save()


if __name__ == "__main__":
    main()
