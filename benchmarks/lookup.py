"""What drafts that are looked up in the text bring: alone, and where a draft model does not pay.

Method. The target writes texts that are given, at a large model's pace (`benchmarks.reciting`: 25 ms a pass): the
small models here cannot be told to edit, and what a model does that can is known beforehand. Behind 40 lines of source,
out of files that no model here was trained on, stands one of:

    editing        the same lines, the most frequent name in them changed to another
    summarising    of the same lines the definitions, and the first lines of what documents them
    new code       what follows in the file

Drafters: `ngram`; the small draft that ships, stretched to 8 ms a token, and to 25 ms, as much as the target's own
pass: both with `--no-lookup` and with the default. Its agreement with these texts is its own. A relay between the two
adds the round-trip time. Rates count from the first token known here to the last, and are of all tokens of a kind over
all their seconds, as multiples of what the target alone streams over the same link, text by text in turn.

    python -m benchmarks.lookup [--rtt 5] [--tokens 200]
"""

import argparse
import json
import keyword
import re
import sys
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backends.vocabulary import Vocabulary
from benchmarks.drafters import BRANCHES, CONTEXT, load_drafter
from benchmarks.harness import HELD_OUT_FILES
from benchmarks.relay import Link, relay
from benchmarks.report import Report, add_save
from benchmarks.serving import serve
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.generation.resuming import released
from drafter_client.generation.start import speculate
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.statistics import Stats
from drafters.base import Drafter
from drafters.draft_model import ModelDrafter
from drafters.lookup import NgramDrafter
from models import DEFAULT_DRAFT
from simulation.paced import DRAFTER_8, TARGET_25, Cost, Paced
from speculation.sampling.sampling import Sampling

LINES = 40
SLOW = DRAFTER_8.dilated(25.0 / 8.0)


@dataclass(frozen=True)
class Task:
    """A text to write behind a prompt, as token ids."""

    kind: str
    prompt: list[int]
    answer: list[int]


@dataclass
class Sum:
    """All texts of one kind by one drafter."""

    tokens: int = 0
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0
    looked_up: int = 0
    right: bool = True  # whether every text was the one to write

    def add(self, tokens: list[int], moments: list[float], stats: Stats, answer: list[int]) -> None:
        self.tokens += len(tokens) - 1
        self.seconds += moments[-1] - moments[0]
        self.drafted, self.accepted = self.drafted + stats.drafted, self.accepted + stats.accepted
        self.looked_up += stats.looked_up
        self.right = self.right and tokens == answer


def tasks(vocabulary: Vocabulary, most: int) -> list[Task]:
    """Each kind for each file; answers of at most so many tokens."""
    made = []
    for name in HELD_OUT_FILES:
        lines = Path(sysconfig.get_path("stdlib"), name).read_text(encoding="utf-8").splitlines(keepends=True)
        begin = next(at for at in range(len(lines) // 2, len(lines)) if lines[at].lstrip().startswith("def "))
        source = "".join(lines[begin : begin + LINES])
        old = frequent_name(source)
        prompts_and_answers = {
            "editing": (f"{source}\n\n# The same with new_{old} for {old}.\n", renamed(source, old, f"new_{old}")),
            "summarising": (f"{source}\n\n# What is defined here.\n", definitions(source)),
            "new code": (source, "".join(lines[begin + LINES : begin + 2 * LINES])),
        }
        for kind, (prompt, answer) in prompts_and_answers.items():
            ids = vocabulary.encode(answer, add_begin=False)[:most]
            made.append(Task(kind, vocabulary.encode(prompt), ids))
    return made


def frequent_name(source: str) -> str:
    """The name that stands in `source` most often, of five letters or more and no keyword."""
    names = re.findall(r"[A-Za-z_]\w{4,}", source)
    return Counter(name for name in names if not keyword.iskeyword(name)).most_common(1)[0][0]


def renamed(source: str, old: str, new: str) -> str:
    """`source` with one name in place of another."""
    return re.sub(rf"\b{re.escape(old)}\b", new, source)


def definitions(source: str) -> str:
    """The lines of `source` that define something, each with the first line of its documentation."""
    lines = source.splitlines(keepends=True)
    after = zip(lines, [*lines[1:], ""], strict=True)
    kept = [(line, more if '"""' in more else "") for line, more in after if re.match(r"\s*(def |class |@)", line)]
    return "".join(line for pair in kept for line in pair)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rtt", type=float, default=5.0, help="milliseconds (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=200, help="of a text, at most (default: %(default)s)")
    add_save(parser)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL)
    report = Report("lookup", options)
    sums: dict[tuple[str, str], Sum] = defaultdict(Sum)
    with closing(load_drafter(DEFAULT_DRAFT)) as model, TemporaryDirectory() as folder:
        todo = tasks(model.vocabulary, options.tokens)
        texts = Path(folder, "texts.json")
        texts.write_text(json.dumps([[*task.prompt, *task.answer] for task in todo]), encoding="utf-8")
        settings = {"RECITED": str(texts), "PACED_TARGET": str(TARGET_25), "VERIFIER_CONTEXT": str(CONTEXT)}

        def paced(cost: Cost) -> Drafter:
            model.release(0)
            return ModelDrafter(Paced(model, cost), Sampling())

        ways: dict[str, tuple[Any, bool]] = {
            "ngram": (lambda: NgramDrafter(BRANCHES), False),
            "small, 8 ms, --no-lookup": (lambda: paced(DRAFTER_8), False),
            "small, 8 ms": (lambda: paced(DRAFTER_8), True),
            "small, 25 ms, --no-lookup": (lambda: paced(SLOW), False),
            "small, 25 ms": (lambda: paced(SLOW), True),
        }
        with (
            serve("benchmarks.reciting:app", {**settings, "VERIFIER_ROWS": "2"}) as server,
            relay(server.url, Link(rtt_ms=options.rtt)) as url,
            closing(VerifierClient(url)) as client,
        ):
            client.wait_until_ready()
            client.ping()
            for task in todo:
                sums[task.kind, "target"].add(*_alone(client, task), Stats(), task.answer)
                for name, (drafter, lookup) in ways.items():
                    stats = Stats()
                    moments = list(_drafted(client, task, drafter(), lookup, stats))
                    sums[task.kind, name].add(stats.token_ids, moments, stats, task.answer)
    for kind in dict.fromkeys(task.kind for task in todo):
        _say(report, kind, {name: sums[kind, name] for name in ("target", *ways)})
    report.save()


def _say(report: Report, kind: str, by_name: dict[str, Sum]) -> None:
    report.line(f"\n{kind}")
    alone = by_name["target"].tokens / by_name["target"].seconds
    for name, each in by_name.items():
        rate = each.tokens / each.seconds
        text = "" if each.right else "  NOT THE TEXT"
        drafts = f"  {each.drafted:4} drafted, {each.accepted:4} stood, {each.looked_up:4} looked up"
        report.line(f"  {name:26} {rate:6.1f} tokens/s  {rate / alone:.2f}x{drafts if each.drafted else ''}{text}")


def _request(task: Task) -> dict[str, Any]:
    return {"max_tokens": len(task.answer), "temperature": 0.0, "seed": 0}


def _alone(client: VerifierClient, task: Task) -> tuple[list[int], list[float]]:
    tokens: list[int] = []
    moments = []
    with released(client, TextSession(task.prompt)) as text:
        for name, data in client.generate(text, _request(task)):
            if name == "tokens":
                tokens += data["tokens"]
                moments.append(time.perf_counter())
    return tokens, moments


def _drafted(client: VerifierClient, task: Task, drafter: Drafter, lookup: bool, stats: Stats) -> Iterator[float]:
    info = client.model()
    with released(client, TextSession(task.prompt)) as text:
        for _ in speculate(client, drafter, text, _request(task), info, stats, time.perf_counter, lookup=lookup):
            yield time.perf_counter()


if __name__ == "__main__":
    main()
