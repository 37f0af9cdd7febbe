"""What drafts from the user's own files bring. `lab.benchmarks.lookup.indexing` measures what indexing them costs.

Method. The repository is the standard library's top folder. The target writes given texts at 25 ms a pass, as in
`lab.benchmarks.lookup`, behind prompts that do not hold what is written:

continuing     what follows 10 lines of a file of the repository
editing        40 lines of a file of the repository, the most frequent name in them changed, told by their first line
new file       what follows 40 lines of a file that is not in the repository yet; the others are

Each is drafted by `ngram` and by the small draft that ships, at 8 ms a token, with the default lookup: without a
corpus, with the repository as the corpus, and with an unrelated one (the pages in docs/). A relay adds the round trip.
Rates count from the first token to the last. There are four texts of each file. A text of so few tokens is faster or
slower by several percent from one time to the next, and so what a corpus brings is told by the median over texts, too.

    python -m lab.benchmarks.lookup.corpus [--rtt 5] [--tokens 100]
"""

import re
import sysconfig
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.benchmarks.harness.models import BRANCHES, HELD_OUT_FILES, load_drafter
from lab.benchmarks.harness.report import ROOT, Report, options_of
from lab.benchmarks.harness.texts import Written, alone, by_turns, paired, rate, table
from lab.benchmarks.lookup.served import reciting
from lab.benchmarks.lookup.tasks import LINES, Task, frequent_name, renamed
from lab.simulator.paced.engine import DRAFTER_8, Paced
from models import DEFAULT_DRAFT
from specpair.corpus.draft_corpus import DraftCorpus
from specpair.drafters.base import Drafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.lookup import NgramDrafter
from specpair.engines.vocabulary import Vocabulary
from specpair.quantile import quantile
from specpair.speculation.sampling.sampling import Sampling

PLACES = 4  # of each file
BEFORE = 10  # lines of the prompt before a continuation
REPOSITORY, OTHERS, UNRELATED = "the repository", "without the new file", "an unrelated one"
KINDS = {"continuing": REPOSITORY, "editing": REPOSITORY, "new file": OTHERS}  # by what is in the corpus
DRAFTERS = ("ngram", "small, 8 ms")
FLAGS = {
    "rtt": {"default": 5.0, "help": "milliseconds (default: %(default)s)"},
    "tokens": {"default": 100, "help": "of a text, at most (default: %(default)s)"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("lookup.corpus", options, "lookup_corpus")
    with ExitStack() as stack:
        model = stack.enter_context(closing(load_drafter(DEFAULT_DRAFT)))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        todo = tasks(model.vocabulary, options.tokens)
        corpora = {}
        for name, root in roots(folder).items():
            corpus = stack.enter_context(closing(DraftCorpus([root], model.vocabulary, folder / "cache")))
            corpus.wait()
            corpora[name] = corpus
            state = corpus.state
            report.line(f"{name}: {state.files} files, {state.tokens} tokens")
        client = stack.enter_context(reciting(todo, folder, options.rtt))
        round_trip, info = client.ping(), client.model()

        def target(task: Task, _seed: int) -> Written:
            return alone(client, task.prompt, request(task))

        def drafter(name: str) -> Drafter:
            model.release(0)
            return NgramDrafter(BRANCHES) if name == "ngram" else ModelDrafter(Paced(model, DRAFTER_8), Sampling())

        def pair(name: str, corpus: DraftCorpus | None, task: Task, _seed: int) -> Written:
            how = {"round_trip": round_trip, "lookup": name != "ngram", "corpus": corpus and corpus.lookup}
            return paired(client, drafter(name), task.prompt, request(task), info, **how)

        for kind, related in KINDS.items():
            ways: dict[str, Callable[[Task, int], Written]] = {"target": target}
            for name in DRAFTERS:
                ways[name] = partial(pair, name, None)
                ways[f"{name}, corpus"] = partial(pair, name, corpora[related])
                ways[f"{name}, unrelated"] = partial(pair, name, corpora[UNRELATED])
            written = by_turns(ways, [task for task in todo if task.kind == kind])
            report.line(f"\n{kind}", *table(written))
            for name in DRAFTERS:
                for each in ("corpus", "unrelated"):
                    helped, without = written[f"{name}, {each}"], written[name]
                    median = quantile([one.rate / other.rate for one, other in zip(helped, without, strict=True)], 0.5)
                    times = f"{rate(helped) / rate(without):.2f} times without a corpus, in the median {median:.2f}"
                    report.line(f"  {name}, {each}: {times}")
    report.save()


def tasks(vocabulary: Vocabulary, most: int) -> list[Task]:
    """Each kind at some places of each file; answers of at most so many tokens."""
    library = Path(sysconfig.get_path("stdlib"))
    return [task for name in HELD_OUT_FILES for task in tasks_of(library / name, PLACES, vocabulary, most)]


def tasks_of(path: Path, places: int, vocabulary: Vocabulary, most: int) -> list[Task]:
    """Each kind at so many places of a file; answers of at most `most` tokens."""
    made, lines = [], path.read_text(encoding="utf-8").splitlines(keepends=True)
    for part in range(1, places + 1):
        after = range((len(lines) - 2 * LINES) * part // (places + 1), len(lines))
        begin = next(at for at in after if lines[at].lstrip().startswith("def "))
        source, follows = ("".join(lines[at : at + LINES]) for at in (begin, begin + LINES))
        old = frequent_name(source)
        edited = f"# {path.name}: new_{old} in place of {old}, from here on:\n#     {lines[begin].strip()}\n"
        before = "".join(lines[begin + LINES - BEFORE : begin + LINES])
        prompts_and_answers = {
            "continuing": (before, follows),
            "editing": (edited, renamed(source, old, f"new_{old}")),
            "new file": (source, follows),
        }
        for kind, (prompt, answer) in prompts_and_answers.items():
            ids = vocabulary.encode(answer, add_begin=False)[:most]
            made.append(Task(kind, vocabulary.encode(prompt), ids))
    return made


def roots(folder: Path) -> dict[str, Path]:
    """The folders that are indexed, by what is in them."""
    for name, left_out in ((REPOSITORY, ()), (OTHERS, HELD_OUT_FILES)):
        (folder / name).mkdir()
        for path in Path(sysconfig.get_path("stdlib")).glob("*.py"):
            if path.name not in left_out:
                (folder / name / path.name).write_bytes(path.read_bytes())
    return {REPOSITORY: folder / REPOSITORY, OTHERS: folder / OTHERS, UNRELATED: ROOT / "docs"}


def copies(folder: Path, megabytes: int) -> int:
    """Copy the sources of installed packages, each time with other names, until there are so many megabytes."""
    written, sources = 0, sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    for number in count():
        (folder / f"{number}").mkdir(parents=True)
        for at, path in enumerate(sources):
            text = path.read_text(encoding="utf-8", errors="replace")
            text = re.sub(r"\b([a-z]{4,8})\b", rf"\1_{number}", text, count=200) if number else text
            written += (folder / f"{number}" / f"{at}.py").write_text(text, encoding="utf-8")
            if written >= megabytes * 1_000_000:
                return written // 1_000_000
    raise AssertionError("there is no end of numbers")


def request(task: Task) -> dict[str, float]:
    """What is asked of the target for a text."""
    return {"max_tokens": len(task.answer), "temperature": 0.0, "seed": 0}


if __name__ == "__main__":
    main()
