"""`drafter --prompt-file`: many texts by the pair, several at a time, resumable, with their metrics summed up."""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from queue import Empty, SimpleQueue
from statistics import median
from types import FrameType
from typing import TypeVar

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drafter_client.cli import steps
from drafter_client.cli.prompts import FilePrompt
from drafter_client.cli.results import COUNTS, ModelNames, Result, ResultsFile, failed, finished
from drafter_client.display.panel_rows import exactness, share, size, unit
from drafter_client.display.progress import WritingProgress, writing
from drafter_client.errors import BadPrompt, DrafterError
from drafter_client.generation.generation import Finished
from drafter_client.options import Mode
from drafter_client.pair import Pair
from specpair.engines.errors import BackendError, EngineLost
from specpair.numbers import counted
from specpair.protocol.errors import EngineError, InternalError, RequestError, SpecPairError
from specpair.protocol.terminal_text import one_line, several_lines
from specpair.speculation.acceptance.round_counts import RoundCounts
from specpair.speculation.acceptance.strategies import Strategy

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")
ENDING = "drafter: ending what is under way; Ctrl-C again does not wait for it"
_SLICE = 0.1  # seconds: a signal that arrives just before a wait begins is handled only when the wait ends


def in_parallel(
    tasks: Sequence[A], work: Callable[[A], R | None], threads: int, stop: threading.Event
) -> Generator[R, None, None]:
    """Yield the result of `work` for each task, in order of completion; tasks are started in the given order.

    Once `stop` is set, no task is started; `work` can check it, and returns None for a task that it abandons. Results
    from before are still yielded. An error that `work` raises sets `stop`, and is raised at the end. The generator sets
    `stop` at its end, too, also when it is closed. All threads have ended by then.
    """
    done: SimpleQueue[Future[R | None]] = SimpleQueue()

    def run(task: A) -> R | None:
        try:
            return None if stop.is_set() else work(task)
        except BaseException:
            stop.set()
            raise

    failure: BaseException | None = None
    with ThreadPoolExecutor(threads) as pool:
        try:
            for task in tasks:
                pool.submit(run, task).add_done_callback(done.put)
            for _ in tasks:
                future = _first_of(done)
                if (error := future.exception()) is not None:
                    failure = failure or error
                elif (result := future.result()) is not None:
                    yield result
        finally:
            stop.set()
    if failure is not None:
        raise failure


def _first_of(queue: SimpleQueue[T]) -> T:
    """Wait for an item. Signals that arrive meanwhile are handled."""
    while True:
        with suppress(Empty):
            return queue.get(timeout=_SLICE)


def run_many(options: argparse.Namespace) -> int:
    """Write a text for each prompt of a file, and show the totals. Returns the exit status."""
    steps.check_system(options)
    chosen = steps.text_options(options)
    prompts = steps.read_prompts(options.prompt_file, chosen, chat=options.chat, system=options.system)
    texts = min(options.concurrency, len(prompts))
    with ExitStack() as stack:
        file = None if options.output is None else stack.enter_context(ResultsFile(options.output))
        pair = stack.enter_context(steps.pair_of(options, texts))
        steps.check_draft_n(pair, options)
        if any(prompt.chat for prompt in prompts) and not pair.target.chat_template:
            pair.chat("")  # raises the error that every prompt would meet
        found: dict[int, Result] = {}
        if file is not None:
            found = file.begin(prompts, _models(pair))
        return _Run(prompts, found, file, as_json=options.json).go(pair, texts)


class _Run:
    """One run over the prompts that have no finished text in the file. New results go to the file, or are shown."""

    def __init__(
        self, prompts: list[FilePrompt], found: dict[int, Result], file: ResultsFile | None, *, as_json: bool
    ) -> None:
        self._prompts, self._file, self._json = prompts, file, as_json
        self._found = [result for result in found.values() if not result.failed]
        self._new: list[Result] = []
        self._early: dict[int, Result] = {}  # results that wait for those of prompts before
        self._next = 0  # the prompt whose result is shown next
        self._out = Console(markup=False, highlight=False, soft_wrap=True)
        if file is not None and found:
            again = len(found) - len(self._found)
            note = f"drafter: {file.name} holds {len(self._found)} of {counted(len(prompts), 'text')} already"
            _say(note + (f", and {again} that failed: tried again" if again else ""))

    def go(self, pair: Pair, texts: int) -> int:
        """Generate the texts that are missing, `texts` at a time. Returns the exit status.

        Raises an error that every prompt would meet; finished texts are kept and shown.
        """
        done = {result.index for result in self._found}
        pending = [prompt for prompt in self._prompts if prompt.index not in done]
        stop = threading.Event()
        failure: Exception | None = None
        began = time.monotonic()
        with writing(len(self._prompts), len(done)) as progress, _interrupts(stop, pair, progress) as interrupted:
            results = in_parallel(pending, lambda prompt: write(pair, prompt, progress, stop), texts, stop)
            try:
                with closing(results):
                    for result in results:
                        self._take(result, progress)
            except (SpecPairError, DrafterError, BackendError) as error:
                failure = error
        seconds = time.monotonic() - began
        self._show(result for _, result in sorted(self._early.items()))
        if failure is None and not interrupted.is_set() and self._file is not None:
            self._file.put_in_order()
        if self._texts():
            console = Console(stderr=True, markup=False, highlight=False)
            show_totals(len(self._prompts), self._found, self._new, seconds, console)
        return self._conclude(interrupted.is_set(), failure)

    def _take(self, result: Result, progress: WritingProgress) -> None:
        if self._file is not None:
            self._file.add(result)
        self._new.append(result)
        progress.finished()
        if result.failed:
            with progress.aside():
                _say(f"drafter: {self._prompts[result.index].label}: {result.line['error']['message']}")
        if self._file is None:
            self._early[result.index] = result
            with progress.aside():
                while self._next in self._early:
                    self._show([self._early.pop(self._next)])
                    self._next += 1

    def _show(self, results: Iterable[Result]) -> None:
        """Print the texts of results, or with --json their lines, on standard output."""
        for result in results:
            if self._json:
                print(json.dumps(result.line), flush=True)
            elif not result.failed:
                if self._out.is_terminal:
                    self._out.rule(Text(self._prompts[result.index].label), style="dim", align="left")
                    self._out.print(Text(several_lines(result.line["text"])))
                else:  # unchanged: rich would expand tabs and drop carriage returns
                    print(result.line["text"], flush=True)

    def _texts(self) -> int:
        return len(self._found) + sum(not result.failed for result in self._new)

    def _conclude(self, interrupted: bool, failure: Exception | None) -> int:
        where = "finished; with --output FILE, the same command could go on from there"
        if self._file is not None:
            where = f"in {self._file.name}; the same command goes on from there"
        so_far = f"{self._texts()} of {counted(len(self._prompts), 'text is', 'texts are')} {where}"
        if interrupted:  # errors after that do not matter
            _say(f"drafter: interrupted: {so_far}")
            return steps.INTERRUPTED
        if failure is not None:
            _say(f"drafter: stopped: {so_far}")
            raise failure
        errors = sum(result.failed for result in self._new)
        if errors:
            again = "" if self._file is None else "; the same command tries again"
            _say(f"drafter: {errors} of {counted(len(self._prompts), 'prompt')} failed{again}")
        return 1 if errors else 0


def show_totals(prompts: int, found: Sequence[Result], new: Sequence[Result], seconds: float, console: Console) -> None:
    """Print statistics of the results over a file with `prompts` prompts: of the finished ones of earlier runs, and of
    the `new` ones of this run, which took `seconds`. The rate of all texts together is that of this run. Rates are in
    tokens per second, with the time of the prompt included."""
    written = [result for result in new if not result.failed]
    lines = [result.line for result in (*found, *written)]
    total = {name: sum(line[name] for line in lines) for name in COUNTS}
    drafts = RoundCounts(rounds=total["rounds"], drafted=total["drafted"], accepted=total["accepted"])
    away = sum(float(line.get("outage_ms", 0.0)) for line in lines)
    worked = [(line["generated_tokens"], line["total_ms"] - line.get("outage_ms", 0.0)) for line in lines]
    rates = [1e3 * tokens / took for tokens, took in worked if took > 0]
    together = sum(result.line["generated_tokens"] for result in written) / seconds if seconds > 0 else None
    ttft = f"{median(line['ttft_ms'] for line in lines):.0f} ms" if lines else "-"
    rate, length = share(drafts.acceptance_rate), unit(drafts.mean_acceptance_length)
    rows = [
        ("prompts", str(prompts), "all together", unit(together or None, "tokens/s")),
        ("finished", str(len(lines)), "a text, median", unit(median(rates) if rates else None, "tokens/s")),
        ("errors", str(len(new) - len(written)), "TTFT, median", ttft),
        ("tokens", str(total["generated_tokens"]), "time", f"{seconds:.1f} s"),
        ("acceptance rate", rate, "mean acceptance length", length),
        ("sent", size(total["bytes_sent"]), "received", size(total["bytes_received"])),
    ]
    asked = lines[0]["asked"] if lines else {}  # strategy and mode are those of all texts
    strategy = asked.get("strategy", Strategy.COUPLED)
    if strategy != Strategy.COUPLED:
        threshold = "" if asked["threshold"] is None else f" {asked['threshold']:g}"
        exact = exactness(strategy, drafted=asked["mode"] != Mode.TARGET)
        rows.append(("strategy", f"{strategy}{threshold}", "the text is", exact))
    table = Table.grid(padding=(0, 2))
    for column in range(4):
        table.add_column(justify="right" if column % 2 else "left", style="" if column % 2 else "dim")
    for row in rows:
        table.add_row(*row)
    notes = []
    if away:
        notes.append(f"waited {1e-3 * away:.1f} s for the verifier, which is no part of the speed of a text")
    if resumed := sum(bool(line.get("resumed")) for line in lines):
        notes.append(f"{counted(resumed, 'text was', 'texts were')} resumed after the verifier went away")
    title = "no text"
    if lines:
        model, drafter = lines[0]["model"], lines[0]["draft_model"]
        title = one_line(f"{drafter} drafts for {model}" if drafter else model)
    console.print(Panel(Group(table, *map(Text, notes)), title=Text(title), border_style="blue", expand=False))


def write(pair: Pair, prompt: FilePrompt, progress: WritingProgress, stop: threading.Event) -> Result | None:
    """Generate one text. Returns its result, which may be an error of this prompt alone; None if `stop` ended it."""
    models = _models(pair)
    try:
        ids = steps.prompt_ids(pair, prompt.said, prompt.chat, prompt.system)
        with pair.generate(ids, prompt.options) as generation:
            while not stop.is_set() and (event := next(generation, None)) is not None:
                if isinstance(event, Finished):
                    return finished(prompt, models, event.stats.report(event.text))
                progress.wrote(len(event.tokens))
        return None
    except (SpecPairError, DrafterError, BackendError) as error:
        if not _is_of_this_prompt(error):
            raise
        return failed(prompt, models, error)


def _models(pair: Pair) -> ModelNames:
    return ModelNames(pair.target.name, pair.draft_model, pair.target.draft_model)


def _is_of_this_prompt(error: Exception) -> bool:
    if isinstance(error, BackendError):
        return not isinstance(error, EngineLost)
    if type(error) is RequestError:  # the response was none of a verifier
        return False
    return isinstance(error, (RequestError, EngineError, InternalError, BadPrompt))


@contextmanager
def _interrupts(stop: threading.Event, pair: Pair, progress: WritingProgress) -> Iterator[threading.Event]:
    """A context in which Ctrl-C sets `stop` and the event that is yielded, so that texts under way end in order.

    A second Ctrl-C kills the process.
    """
    interrupted = threading.Event()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or handled by the calling program
        yield interrupted
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interrupted.set()
        stop.set()
        pair.wait_no_more()
        pair.end_texts()
        with suppress(OSError):  # not `print`, which the signal may have interrupted
            os.write(2, f"{progress.row_of_its_own()}{ENDING}\n".encode())

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _say(note: str) -> None:
    print(several_lines(note), file=sys.stderr)
