"""What a draft corpus costs where it has nothing to do with the text, in virtual time: no shared machine moves it.

Method. As `lab.benchmarks.lookup.corpus`, with the real controller, lookups and verifier in the world of the simulator:
the target takes 25 ms a pass and 2 % of it for each further token, a draft step of `ngram` 0.2 ms. So the same draft
tokens are always drafted, and a text differs from another by what the corpus does to it, and by nothing else. Texts
are of many files of the standard library. Each is written without a corpus, with the unrelated one (the pages in
docs/), and with the related one of its kind.

    python -m lab.benchmarks.lookup.unrelated [--files 24] [--rtt 5] [--tokens 100]
"""

import random
import sysconfig
from pathlib import Path

from backends.llama_cpp.vocabulary import read_gguf_vocabulary
from lab.benchmarks.harness.models import BRANCHES, CONTEXT
from lab.benchmarks.harness.report import ROOT, Report, options_of
from lab.benchmarks.lookup.corpus import KINDS, OTHERS, REPOSITORY, UNRELATED, tasks_of
from lab.benchmarks.lookup.reciting import Reciting
from lab.benchmarks.lookup.tasks import LINES, Task
from lab.simulator.paced.engine import TARGET_25
from lab.simulator.virtual.drafter import Course, VirtualDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import World
from models import DEFAULT_DRAFT
from specpair.corpus.lookup import CorpusLookup
from specpair.corpus.suffix_array import SuffixArray
from specpair.drafters.lookup import NgramDrafter
from specpair.engines.vocabulary import Vocabulary
from specpair.quantile import quantile
from specpair.speculation.sampling.sampling import Sampling

FLAGS = {
    "files": {"default": 24, "help": "texts of each kind (default: %(default)s)"},
    "rtt": {"default": 5.0, "help": "milliseconds (default: %(default)s)"},
    "tokens": {"default": 100, "help": "of a text, at most (default: %(default)s)"},
}
_STEP = 0.0002  # seconds of a draft step


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("lookup.unrelated", options, "lookup_unrelated")
    vocabulary, _ = read_gguf_vocabulary(DEFAULT_DRAFT)
    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    chosen = random.Random(5).sample([path for path in library if _is_long(path)], options.files)
    arrays = {
        REPOSITORY: _array(library, vocabulary),
        OTHERS: _array([path for path in library if path not in chosen], vocabulary),
        UNRELATED: _array(sorted((ROOT / "docs").glob("*.md")), vocabulary),
    }
    todo = [task for path in chosen for task in tasks_of(path, 1, vocabulary, options.tokens)]
    for kind, related in KINDS.items():
        texts = [task for task in todo if task.kind == kind]
        rtt = options.rtt / 1e3
        alone = [_written(task, None, vocabulary, rtt) for task in texts]
        for corpus in (related, UNRELATED):
            helped = [_written(task, arrays[corpus], vocabulary, rtt) for task in texts]
            ratios = [one.tokens_per_second / other.tokens_per_second for one, other in zip(helped, alone, strict=True)]
            report.line(
                f"{kind}, {corpus}: {_rate(helped) / _rate(alone):.3f} times without a corpus; "
                f"of a text {quantile(ratios, 0.5):.3f} in the median, {min(ratios):.2f} to {max(ratios):.2f}"
            )
    report.save()


def _is_long(path: Path) -> bool:
    """Whether the second half of a file has a function with enough lines behind it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    half, last = len(lines) // 2, len(lines) - 2 * LINES
    return any(line.lstrip().startswith("def ") for line in lines[half : max(half, last)])


def _array(paths: list[Path], vocabulary: Vocabulary) -> SuffixArray:
    return SuffixArray.of([vocabulary.encode(path.read_text(encoding="utf-8"), add_begin=False) for path in paths])


def _written(task: Task, corpus: SuffixArray | None, vocabulary: Vocabulary, rtt: float) -> Course:
    """A text, from its prompt to its end."""
    passes = [TARGET_25.seconds([(tokens, 0)]) for tokens in range(1, 18)]
    target = Reciting([[*task.prompt, *task.answer]], vocabulary, 2, 8 * CONTEXT)
    world = World(target, lambda plan: TARGET_25.of(plan.batch), pass_times=passes)
    pair = VirtualDrafter(
        world,
        task.prompt,
        Sampling(),
        NgramDrafter(BRANCHES),
        lambda _: _STEP,
        max_tokens=len(task.answer),
        network=Network(rtt),
        pass_times=passes,
        corpus=None if corpus is None else CorpusLookup([corpus], vocabulary.size),
    )
    world.at(0.0, pair.start)
    world.run(done=lambda: pair.finished)
    return pair.course


def _rate(texts: list[Course]) -> float:
    return sum(len(text.times) for text in texts) / sum(text.times[-1] - text.opened for text in texts)


if __name__ == "__main__":
    main()
