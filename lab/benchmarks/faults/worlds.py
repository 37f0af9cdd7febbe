"""Worlds in virtual time, each made and judged by its seed, on all cores."""

import logging
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import FrameType

from backends.machine import cores
from lab.benchmarks.faults import clients, drafting, exchanges, pairs

KINDS: tuple[Callable[[int], str], ...] = (pairs.run, clients.run, exchanges.run, drafting.run)
LONGEST = 300  # seconds of real time after which a world counts as hung: most take less than one
_AT_ONCE = 20  # worlds that a process takes


def world(seed: int) -> str:
    """Run one world and check it. Returns its events; raises the fault."""
    return f"{name(seed)}: {KINDS[seed % len(KINDS)](seed)}"


def name(seed: int) -> str:
    return KINDS[seed % len(KINDS)].__module__.rpartition(".")[2]


def run(seeds: range) -> tuple[list[str], list[str]]:
    """Run these worlds. Returns the number that failed, and each fault with the command to repeat it."""
    parts = [seeds[start : start + _AT_ONCE] for start in range(0, len(seeds), _AT_ONCE)]
    wrong = list[str]()
    with ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn"), _begin) as pool:  # this one has threads
        for number, each in enumerate(pool.map(failed, parts), 1):
            wrong += each
            if number % 25 == 0:
                print(f"{number * _AT_ONCE} worlds", file=sys.stderr)
    return [f"{len(wrong)} worlds with a difference, a loss or something left"], wrong


def _begin() -> None:
    logging.disable()  # passes that fail are logged, and many do
    signal.signal(signal.SIGALRM, _hung)


def _hung(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"not over after {LONGEST} s")


def failed(seeds: range) -> list[str]:
    """Run these worlds in this process. Returns the fault of each failed world."""
    wrong = []
    for seed in seeds:
        signal.alarm(LONGEST)
        try:
            world(seed)
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
            what = f"world {seed} ({name(seed)}): {type(error).__name__} at {where}: {str(error)[:500]}"
            wrong.append(f"{what}\n    repeat: python -m lab.benchmarks.faults --world {seed}")
        finally:
            signal.alarm(0)
    return wrong
