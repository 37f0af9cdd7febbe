"""What drafts that are looked up in the text bring: alone, and where a draft model does not pay.

Method. The target writes given texts (`lab.benchmarks.lookup.tasks`) at 25 ms a pass: the small models here cannot be
told to edit, and what a model does that can is known beforehand. Drafters are `ngram` and the small draft that ships,
paced to 8 ms a token and to 25, with `--no-lookup` and with the default; its agreement with these texts is its own. A
relay adds the round trip. Rates count from the first token known here to the last.

    python -m lab.benchmarks.lookup [--rtt 5] [--tokens 200]
"""

from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.benchmarks.harness.models import BRANCHES, load_drafter
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, alone, by_turns, paired, table
from lab.benchmarks.lookup.served import reciting
from lab.benchmarks.lookup.tasks import Task, tasks
from lab.simulator.costs.linear import LinearCost
from lab.simulator.paced.engine import DRAFTER_8, Paced
from models import DEFAULT_DRAFT
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.lookup import NgramDrafter
from specpair.speculation.sampling.sampling import Sampling

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


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("lookup", options)
    with closing(load_drafter(DEFAULT_DRAFT)) as model, TemporaryDirectory() as folder:
        todo = tasks(model.vocabulary, options.tokens)
        with reciting(todo, Path(folder), options.rtt) as client:
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


if __name__ == "__main__":
    main()
