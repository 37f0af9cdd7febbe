"""Runs replications of many configurations in several processes. What comes of them does not depend on how many."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.processes import collect_seldom, deaf_to_interrupts
from lab.simulator.results.replications import evaluate
from lab.simulator.running.simulate import seed_of

Values = Mapping[str, float]  # measures by name
Evaluate = Callable[[Configuration, int], Values]  # of one replication, by its seed
Job = tuple[Configuration, int]  # a configuration, and the number of a replication; the first is 0
EvaluateAll = Callable[[Sequence[Job]], Iterable[Values]]  # in the order of the jobs, each as it is there


@contextmanager
def evaluation(jobs: int, evaluate: Evaluate = evaluate) -> Iterator[EvaluateAll]:
    """What runs jobs, in this context.

    Replications with the same number have the same seed in all configurations, and so the same load (common random
    numbers).
    `jobs`: processes at once. An exception in this context ends them, Ctrl-C too.
    `evaluate`: of one replication; with several processes a function of a module, which they import.
    """
    if jobs == 1:
        yield lambda asked: (evaluate(configuration, seed_of(configuration, number)) for configuration, number in asked)
        return
    context = multiprocessing.get_context("spawn")  # a copy of this process would have its threads' locks
    with ProcessPoolExecutor(jobs, context, _begin) as pool:

        def all_of(asked: Sequence[Job]) -> Iterator[Values]:
            with deaf_to_interrupts():
                futures = [pool.submit(evaluate, each, seed_of(each, number)) for each, number in asked]
            return (each.result() for each in futures)

        try:
            yield all_of
        except BaseException:
            for each in multiprocessing.active_children():  # nobody wants what they compute, which may take long
                each.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program's own process is interrupted, and ends the others
