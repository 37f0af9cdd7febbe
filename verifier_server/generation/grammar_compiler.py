"""Compiles the grammars of requests in a thread, so that a large one delays the texts of nobody else."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.of_text import processors_of
from specpair.speculation.text_options import TextSpec
from verifier_server.generation.fair_pool import FairPool


class GrammarCompiler:
    """One thread, for which clients take turns. Used by the event loop's thread only."""

    def __init__(self) -> None:
        self._pool = FairPool(1, "grammar")

    async def compile(self, spec: TextSpec, vocabulary: Vocabulary, client: Hashable) -> None:
        """Compile the grammar of `spec`, if it has one: then a session makes its processor in microseconds.

        Raises InvalidRequest for a grammar that is wrong.
        """
        if spec.grammar_text is None:
            return
        compiled: Future[None] = Future()
        self._pool.submit(client, lambda: _settle(compiled, lambda: processors_of(spec.drawn, vocabulary, 0)))
        await asyncio.wrap_future(compiled)

    def stop(self) -> None:
        """Wait for the thread to end."""
        self._pool.shutdown()


def _settle(future: Future[None], work: Callable[[], object]) -> None:
    """Do `work` unless it is no longer wanted, and tell how it ended."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        work()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(None)
