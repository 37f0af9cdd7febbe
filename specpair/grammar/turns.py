"""Compiles grammars in threads, for which clients take turns, so that no grammar delays other clients' texts.

A grammar first gets `_QUICK` seconds. One that takes longer is started anew, with all its time, but only one such
grammar at a time. So a usual one never waits for several of those.
"""

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specpair.engines.vocabulary import Vocabulary
from specpair.fairness import FairTurns
from specpair.grammar.of_text import grammars_for, processors_of
from specpair.protocol.errors import Overloaded, ShuttingDown
from specpair.speculation.sampling.grammar import GrammarText
from specpair.speculation.text_options import TextSpec

if TYPE_CHECKING:
    from specpair.grammar.compiling import Grammars

_AT_A_TIME = 2  # grammars
_QUICK = 1.0  # seconds
_MOST_WAITING = 64  # grammars of one client


@dataclass(eq=False, slots=True)
class _Job:
    client: Hashable
    grammars: "Grammars"
    grammar: GrammarText
    done: asyncio.Future[None]
    slow: bool = False


class GrammarCompiler:
    """Used by the event loop's thread only."""

    def __init__(self) -> None:
        self._turns = FairTurns[_Job](lambda job: job.client)
        self._waiting: list[_Job] = []  # those that have not been tried come first
        self._running: list[_Job] = []
        self._stopped = False

    async def compile(self, spec: TextSpec, vocabulary: Vocabulary, client: Hashable) -> None:
        """Compile the grammar of `spec`, if it has one: then its processor is made in microseconds.

        Raises InvalidRequest for a grammar that is wrong, or takes too much, and Overloaded if too many grammars of
        this client wait.
        """
        grammar, grammars = spec.grammar_text, grammars_for(spec, vocabulary)
        if grammar is None or grammars is None:
            return
        if not grammars.is_compiled(grammar):
            if self._stopped:
                raise stopping()
            if sum(job.client == client for job in self._waiting) >= _MOST_WAITING:
                raise Overloaded(f"{_MOST_WAITING} grammars of this client wait to be compiled", retry_after=1)
            job = _Job(client, grammars, grammar, asyncio.get_running_loop().create_future())
            self._turns.arrived(job)
            self._waiting.insert(sum(not each.slow for each in self._waiting), job)
            self._start()
            await job.done
        processors_of(spec.drawn, vocabulary, 0)  # what stands beside the grammar may be wrong, too

    def stop(self) -> None:
        """Stop compiling: requests that wait for a grammar get an error. Returns at once."""
        self._stopped = True
        for job in (*self._waiting, *self._running):
            job.grammars.kill()
            if not job.done.done():
                job.done.set_exception(stopping())
        self._waiting.clear()

    def _start(self) -> None:
        """Start to compile the grammars whose turn it is."""
        self._waiting = [job for job in self._waiting if not job.done.done()]  # whoever waited may have gone
        slow_runs = any(job.slow for job in self._running)
        while len(self._running) < _AT_A_TIME:
            ready = [job for job in self._waiting if not (job.slow and slow_runs)]
            if not ready:
                return
            job = self._turns.pop_next(ready)
            self._waiting.remove(job)
            self._running.append(job)
            slow_runs = slow_runs or job.slow
            # Not in a pool, whose threads are waited for at the end of the process.
            loop = asyncio.get_running_loop()
            threading.Thread(target=_compile, args=(job, loop, self._ended), name="grammar", daemon=True).start()

    def _ended(self, job: _Job, compiled: bool, error: Exception | None) -> None:
        self._running.remove(job)
        if job.done.done():
            pass
        elif error is not None:
            job.done.set_exception(error)
        elif compiled:
            job.done.set_result(None)
        elif not self._stopped:
            job.slow = True
            self._waiting.append(job)
        self._start()


def _compile(job: _Job, loop: asyncio.AbstractEventLoop, ended: Callable[..., None]) -> None:
    compiled, error = False, None
    try:
        compiled = job.grammars.compile(job.grammar) if job.slow else job.grammars.compile(job.grammar, _QUICK)
    except Exception as raised:
        error = raised
    with suppress(RuntimeError):  # the event loop has ended
        loop.call_soon_threadsafe(ended, job, compiled, error)


def stopping() -> ShuttingDown:
    """The error of a request that a stop of the process ends."""
    return ShuttingDown("this process is being stopped: ask again when it is back")
