"""What the indexing of the user's own files costs: the texts that are written meanwhile, time, memory and disk.

Method. So many megabytes of source (the installed packages, copied with other names) are indexed by the process that
indexes a user's files, while the small draft that ships writes the texts of `lab.benchmarks.lookup.corpus` with a
target of 25 ms a pass, without a corpus. Each text is written twice, one after the other, in an order that changes:
while that process runs, and while it is stopped. Told is the median of the ratios of their rates, with the range of the
middle half, since a shared machine has slow moments; a pair of texts is as long as they are. The process gives way to a
text, as it does wherever one is written. Then it runs to the end, or for some minutes: its processor time and memory
are what the system counts. All others come first, so on a busy machine it takes many times its processor time. At last
the same texts are looked up in what is indexed by then, token by token, without a target.

    python -m lab.benchmarks.lookup.indexing [--size 1000] [--repeats 5] [--rtt 5] [--tokens 100] [--minutes 60]
"""

import os
import re
import signal
import time
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.benchmarks.harness.models import load_drafter
from lab.benchmarks.harness.processor_time import used_by
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_turns, paired
from lab.benchmarks.lookup.corpus import copies, request, tasks
from lab.benchmarks.lookup.served import reciting
from lab.benchmarks.lookup.tasks import Task
from lab.simulator.paced.engine import DRAFTER_8, Paced
from models import DEFAULT_DRAFT
from specpair.corpus.draft_corpus import DraftCorpus
from specpair.drafters.draft_model import ModelDrafter
from specpair.quantile import quantile
from specpair.speculation.sampling.sampling import Sampling

FLAGS = {
    "size": {"default": 1000, "help": "megabytes of source (default: %(default)s)"},
    "repeats": {"default": 5, "help": "of each text (default: %(default)s)"},
    "minutes": {"default": 60.0, "help": "that the rest of the indexing may take (default: %(default)s)"},
    "rtt": {"default": 5.0, "help": "milliseconds (default: %(default)s)"},
    "tokens": {"default": 100, "help": "of a text, at most (default: %(default)s)"},
}


class Watched:
    """The process that indexes, stopped and continued, with what it has used."""

    def __init__(self, corpus: DraftCorpus) -> None:
        self._corpus = corpus
        self.seconds = 0.0  # in which it was not stopped
        self.processor, self.memory = 0.0, 0  # seconds, and the most bytes that it had
        self._began: float | None = time.perf_counter()

    def run(self, on: bool) -> None:
        """Continue the process, or stop it."""
        process = self._corpus.process
        if process is None:
            return
        self.look()
        os.kill(process, signal.SIGCONT if on else signal.SIGSTOP)
        if self._began is not None:
            self.seconds += time.perf_counter() - self._began
        self._began = time.perf_counter() if on else None

    def look(self) -> None:
        """Note what it has used so far."""
        process = self._corpus.process
        if process is None:
            return
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        self.memory = max(self.memory, 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]))
        self.processor = used_by(process)


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("lookup.indexing", options, "lookup_indexing")
    with ExitStack() as stack:
        model = stack.enter_context(closing(load_drafter(DEFAULT_DRAFT)))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        todo = tasks(model.vocabulary, options.tokens)
        large, cache = folder / "large", folder / "cache"
        megabytes = copies(large, options.size)
        client = stack.enter_context(reciting(todo, folder, options.rtt))
        round_trip, info = client.ping(), client.model()
        corpus = stack.enter_context(closing(DraftCorpus([large], model.vocabulary, cache)))
        watched = Watched(corpus)
        stack.callback(watched.run, True)  # a process that is stopped does not end

        def written(indexing: bool, task: Task) -> Written:
            watched.run(indexing)
            model.release(0)
            drafter = ModelDrafter(Paced(model, DRAFTER_8), Sampling())
            with corpus.writing() if indexing else nullcontext():
                return paired(client, drafter, task.prompt, request(task), info, round_trip=round_trip, lookup=True)

        ways = {"quiet": lambda task, _: written(False, task), "indexing": lambda task, _: written(True, task)}
        pairs = by_turns(ways, todo, options.repeats)
        ratios = [beside.rate / quiet.rate for quiet, beside in zip(pairs["quiet"], pairs["indexing"], strict=True)]
        begun = corpus.state
        low, middle, high = (quantile(ratios, share) for share in (0.25, 0.5, 0.75))
        report.line(f"while {megabytes} MB are indexed: {middle:.3f} of the speed without ({low:.3f} to {high:.3f})")
        report.line(
            f"  {len(ratios)} texts; {begun.tokens} tokens were indexed meanwhile; at the end it ran: {begun.indexing}"
        )
        watched.run(True)
        until = time.perf_counter() + 60.0 * options.minutes
        while not corpus.wait(0.5) and time.perf_counter() < until:
            watched.look()
        watched.run(False)
        state, disk = corpus.state, sum(path.stat().st_size for path in cache.rglob("*.*"))
        report.line(
            f"  {state.files} files, {state.tokens} tokens, in {watched.seconds:.0f} s; {state.waiting} files left"
        )
        report.line(f"  {watched.processor:.0f} s of a processor, {watched.memory // 1_000_000} MB at most")
        report.line(f"  {disk // 1_000_000} MB on the disk")
        times = [1e3 * seconds for task in todo for seconds in looked_up(corpus, task)]
        mean, most = sum(times) / len(times), quantile(times, 0.95)
        report.line(f"  a token looked up: {mean:.3f} ms in the mean, at most {most:.3f} ms for 95 % of them")
    report.save()


def looked_up(corpus: DraftCorpus, task: Task) -> list[float]:
    """Seconds that each token of a text takes to be taken in, and what follows it to be predicted."""
    lookup, times = corpus.lookup(), []
    lookup.extend(task.prompt)
    for token in task.answer:
        began = time.perf_counter()
        lookup.extend([token])
        lookup.predict()
        times.append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    main()
