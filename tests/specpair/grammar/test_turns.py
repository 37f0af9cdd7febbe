"""Clients take turns in compiling grammars, and a slow grammar holds up no usual one."""

import asyncio
import threading
from collections.abc import Hashable
from typing import cast

import pytest

from backends.scripted import ByteVocabulary
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar import turns
from specpair.grammar.turns import GrammarCompiler
from specpair.protocol.errors import InvalidRequest, Overloaded, ShuttingDown
from specpair.speculation.sampling.grammar import GrammarText
from specpair.speculation.text_options import TextSpec


class FakeGrammars:
    """Regexes in capitals have no answer in the time that usual ones have. Each one is compiled when it is released."""

    def __init__(self) -> None:
        self.began = list[str]()
        self.killed = False
        self._compiled = set[str]()
        self._changed = threading.Condition()
        self._released = list[str]()

    def is_compiled(self, grammar: GrammarText) -> bool:
        return grammar.text in self._compiled

    def compile(self, grammar: GrammarText, seconds: float | None = None) -> bool:
        text = grammar.text
        with self._changed:
            self.began.append(text)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: text in self._released or self.killed, 30)
            if not self.killed:
                self._released.remove(text)
        if text == "wrong":
            raise InvalidRequest("regex: wrong")
        if text.isupper() and seconds is not None:
            return False
        self._compiled.add(text)
        return True

    def kill(self) -> None:
        with self._changed:
            self.killed = True
            self._changed.notify_all()

    async def release(self, text: str, began: int) -> None:
        """Release a grammar; wait until `began` have begun."""
        with self._changed:
            self._released.append(text)
            self._changed.notify_all()
        await self.begun(began)

    async def begun(self, count: int) -> None:
        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self.began) >= count, 30), self.began

        await asyncio.to_thread(wait)


@pytest.fixture
def grammars(monkeypatch: pytest.MonkeyPatch) -> FakeGrammars:
    fake = FakeGrammars()
    monkeypatch.setattr(turns, "grammars_for", lambda spec, _: fake if spec.regex else None)
    monkeypatch.setattr(turns, "processors_of", lambda *_: None)
    return fake


def _asked(compiler: GrammarCompiler, text: str, client: Hashable = "a") -> "asyncio.Task[None]":
    vocabulary = cast(Vocabulary, ByteVocabulary())
    return asyncio.create_task(compiler.compile(TextSpec(regex=text), vocabulary, client))


async def _all_asked(compiler: GrammarCompiler, *texts: str) -> "list[asyncio.Task[None]]":
    """The client of each text is its first letter."""
    tasks = [_asked(compiler, text, text[0].lower()) for text in texts]
    await asyncio.sleep(0)
    return tasks


def test_clients_take_turns(grammars: FakeGrammars) -> None:
    async def run() -> None:
        tasks = await _all_asked(GrammarCompiler(), "a1", "a2", "a3", "a4", "b1", "b2", "c1")
        await grammars.begun(2)
        for began, text in enumerate(("a1", "a2", "a3", "b1", "c1"), 3):
            await grammars.release(text, began)
        for text in grammars.began[-2:]:
            await grammars.release(text, 7)
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert grammars.began == ["a1", "a2", "a3", "b1", "c1", "a4", "b2"]


def test_one_slow_grammar_runs_at_a_time_and_usual_ones_beside_it(grammars: FakeGrammars) -> None:
    async def run() -> None:
        compiler = GrammarCompiler()
        slow = await _all_asked(compiler, "A1", "A2", "A3")
        await grammars.begun(2)
        await grammars.release("A1", 3)  # too late: A3 comes first
        await grammars.release("A2", 4)
        await grammars.release("A3", 4)
        usual = await _all_asked(compiler, "a1", "b1")
        await grammars.begun(5)
        await grammars.release("a1", 6)
        await grammars.release("b1", 6)
        await asyncio.gather(*usual)
        assert grammars.began == ["A1", "A2", "A3", "A1", "a1", "b1"]
        assert not any(task.done() for task in slow)
        for began, text in enumerate(("A1", "A2", "A3"), 7):
            await grammars.release(text, min(began, 8))
        await asyncio.gather(*slow)

    asyncio.run(run())
    assert grammars.began[-2:] == ["A2", "A3"]


def test_too_many_grammars_of_one_client_are_refused_and_another_clients_are_not(grammars: FakeGrammars) -> None:
    async def run() -> None:
        compiler = GrammarCompiler()
        tasks = await _all_asked(compiler, *(f"a{at}" for at in range(67)), "b")
        with pytest.raises(Overloaded, match="64 grammars of this client wait"):
            await tasks[66]
        assert not tasks[67].done()
        compiler.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_whoever_waits_at_the_end_gets_an_error_at_once(grammars: FakeGrammars) -> None:
    async def run() -> None:
        compiler = GrammarCompiler()
        tasks = await _all_asked(compiler, "a1", "a2", "a3")
        await grammars.begun(2)
        compiler.stop()
        assert all(isinstance(each, ShuttingDown) for each in await asyncio.gather(*tasks, return_exceptions=True))
        with pytest.raises(ShuttingDown):
            await _asked(compiler, "a4")

    asyncio.run(run())
    assert grammars.killed and len(grammars.began) == 2
