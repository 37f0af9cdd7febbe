"""What drafts that are looked up in the text bring: alone, and where a draft model does not pay.

Method. The target writes given texts at 25 ms a pass: the small models here cannot be told to edit, and what a model
does that can is known beforehand. The texts are of files that no model here was trained on. Behind 40 lines of source:

    editing        the same lines, the most frequent name in them changed to another
    summarising    of the same lines the definitions, and the first lines of what documents them
    new code       what follows in the file

Drafters are `ngram` and the small draft that ships, paced to 8 ms a token and to 25, with `--no-lookup` and with the
default; its agreement with these texts is its own. A relay adds the round trip. Rates count from the first token known
here to the last.

    python -m lab.benchmarks.lookup [--rtt 5] [--tokens 200]
"""

import json
import keyword
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from fastapi import FastAPI

from backends.llama_cpp.vocabulary import read_gguf_vocabulary
from backends.scripted import ScriptedBackend
from lab.benchmarks.harness.models import BRANCHES, CONTEXT, HELD_OUT_FILES, load_drafter
from lab.benchmarks.harness.relay import relay
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, alone, by_turns, connected, paired, table
from lab.simulator.costs.linear import LinearCost
from lab.simulator.paced.engine import DRAFTER_8, TARGET_25, Paced
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.lookup import NgramDrafter
from specpair.engines.backend import Logits
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.sampling import Sampling
from verifier_server.app import create_app
from verifier_server.settings import from_environment

LINES = 40
_CERTAIN = 50.0  # above all other logits
SLOW = DRAFTER_8.dilated(25.0 / 8.0)
WAYS: dict[str, tuple[LinearCost | None, bool]] = {  # the draft model's cost, and whether drafts are looked up
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


@dataclass(frozen=True)
class Task:
    """A text to write behind a prompt, as token ids."""

    kind: str
    prompt: list[int]
    answer: list[int]


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("lookup", options)
    with closing(load_drafter(DEFAULT_DRAFT)) as model, TemporaryDirectory() as folder:
        todo = tasks(model.vocabulary, options.tokens)
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps([[*task.prompt, *task.answer] for task in todo]), encoding="utf-8")
        settings = {"RECITED": texts, "PACED_TARGET": TARGET_25, "context": CONTEXT, "slots": 2}
        with (
            verifier("lab.benchmarks.lookup:application()", **settings) as server,
            relay(server.url, options.rtt) as url,
            connected(url) as client,
        ):
            round_trip, info = client.ping(), client.model()

            def target(task: Task, _seed: int) -> Written:
                return alone(client, task.prompt, _request(task))

            def pair(cost: LinearCost | None, lookup: bool, task: Task, _seed: int) -> Written:
                model.release(0)
                drafter = ModelDrafter(Paced(model, cost), Sampling()) if cost else NgramDrafter(BRANCHES)
                how = {"round_trip": round_trip, "lookup": lookup}
                return paired(client, drafter, task.prompt, _request(task), info, **how)

            ways = {"target": target} | {way: partial(pair, *how) for way, how in WAYS.items()}
            for kind in dict.fromkeys(task.kind for task in todo):
                chosen = [task for task in todo if task.kind == kind]
                written = by_turns(ways, chosen)
                if [text.tokens for text in written["target"]] != [task.answer for task in chosen]:
                    raise RuntimeError(f"the target did not write the texts to write ({kind})")
                report.line(f"\n{kind}", *table(written))
    report.save()


def _request(task: Task) -> dict[str, float]:
    return {"max_tokens": len(task.answer), "temperature": 0.0, "seed": 0}


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
    """The most frequent name in `source` of five letters or more that is no keyword."""
    names: list[str] = re.findall(r"[A-Za-z_]\w{4,}", source)
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


class Reciting(ScriptedBackend):
    """A target that writes given texts, as a large model would that was told to edit one."""

    name = "reciting"

    def __init__(self, texts: Sequence[Sequence[int]], vocabulary: Vocabulary, slots: int, context_length: int) -> None:
        super().__init__(slots=slots, context_length=context_length)
        self.model_name, self.vocabulary = self.name, vocabulary
        self._end = min(vocabulary.ends)
        self._next = {tuple(text[:end]): text[end] for text in texts for end in range(len(text))}

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        logits = np.zeros(self.vocabulary.size, np.float32)
        logits[self._next.get(tuple(tokens), self._end)] = _CERTAIN
        return logits


def application() -> FastAPI:
    """A verifier by the environment. `RECITED`: a file with texts as token ids; `PACED_TARGET`: its cost."""
    settings = from_environment()
    texts = json.loads(Path(os.environ["RECITED"]).read_text(encoding="utf-8"))
    vocabulary, _ = read_gguf_vocabulary(DEFAULT_TARGET)
    options = settings.load_options()
    backend = Reciting(texts, vocabulary, options.slots or 2, options.context_length or CONTEXT)
    return create_app(settings, Paced(backend, LinearCost.parse(os.environ["PACED_TARGET"])))


if __name__ == "__main__":
    main()
