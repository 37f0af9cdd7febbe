"""A core over SGLang: a task for each text asks for one pass after another, up to the text's limit.

SGLang keeps no text. Each pass brings the whole of it, and the radix cache spares SGLang what it has read before.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from specpair.protocol.errors import EngineError, SpecPairError
from specpair.speculation.acceptance.judge import judge
from specpair.speculation.draft import chain
from specpair.speculation.sampling.top_logits import Logits, TopLogits
from verifier_server.engine.external_cores.core import CoreLost, CoreOutput, CoreRequest, CoreStep, CoreUnreachable
from verifier_server.engine.sglang.api import PassPrompt, Refusal, SglangApi, Unreachable
from verifier_server.engine.sglang.replies import UnusableReply
from verifier_server.sessions import Session

PASS = 256  # tokens that one request decodes at most: SGLang repeats all of them with each, unless told otherwise
CHECKED_EVERY, AWAY_EVERY = 5.0, 0.5  # seconds between looks at the server while it is there, and while it is away
ABORTING = 1.0  # seconds that SGLang has to hear of passes that are not wanted any more, when the verifier stops
Identity = Mapping[str, Any]


@dataclass(eq=False)
class _Text:
    """A text of the core."""

    name: str
    session: Session
    salt: str
    wanted: CoreRequest
    tokens: list[int]
    told_cached: bool = False
    failed: bool = False  # whether the connection of the last pass broke
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    decoding: asyncio.Task[None] | None = None  # a part of `task` that a draft interrupts

    @property
    def over(self) -> bool:
        return len(self.tokens) >= self.session.limit or self.tokens[-1] in self.session.ends

    @property
    def draft(self) -> list[int]:
        """The draft to judge now."""
        total = len(self.tokens)
        return self.wanted.tail(self.tokens, total)[: max(0, self.session.limit - total - 1)]

    @property
    def runs_on(self) -> bool:
        """Whether the core should decode it without a draft."""
        return not self.draft and self.wanted.wants_step(self.tokens, len(self.tokens))


class SglangCore:
    """A `Core`. Created and used in the event loop."""

    def __init__(self, api: SglangApi, identity: Identity, clock: Callable[[], float] = time.perf_counter) -> None:
        """`identity`: the values of `SglangApi.model` that must not change."""
        self._api, self._identity, self._clock = api, identity, clock
        self._texts: dict[str, _Text] = {}
        self._outputs: asyncio.Queue[CoreOutput | Exception | None] = asyncio.Queue()  # None: it is back
        self._away = False
        self._look = asyncio.Event()  # whether the server is to be looked at now
        self._aside: set[asyncio.Task[Any]] = set()
        self._start(self._watch())

    async def begin(self, name: str, session: Session, salt: str, wanted: CoreRequest) -> None:
        if self._away:  # the engine hears of it next
            return
        text = _Text(name, session, sha256(salt.encode()).hexdigest(), wanted, list(session.tokens))
        self._texts[name] = text
        text.task = self._start(self._run(text))

    async def update(self, name: str, wanted: CoreRequest) -> None:
        text = self._texts.get(name)
        if text is None:
            return
        text.wanted = wanted
        text.changed.set()
        if text.decoding is not None and not text.runs_on:
            text.decoding.cancel()

    async def forget(self, names: Sequence[str]) -> None:
        for name in names:
            if (text := self._texts.pop(name, None)) is not None and text.task is not None:
                text.task.cancel()

    async def outputs(self) -> list[CoreOutput]:
        found = await self._outputs.get()
        if isinstance(found, Exception):
            raise found
        return [] if found is None else [found]

    async def stop(self) -> None:
        """End all texts, and tell SGLang."""
        await _cancel(self._aside)
        if self._aside:  # passes to abort
            await _cancel((await asyncio.wait(self._aside, timeout=ABORTING))[1])

    async def close(self) -> None:
        await self.stop()
        await self._api.close()

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._aside.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._outputs.put_nowait(error)  # the engine ends with it

    async def _run(self, text: _Text) -> None:
        """Ask for passes until the text has ended or failed."""
        try:
            while not text.over:
                await self._step(text)
        except (UnusableReply, SpecPairError) as error:
            self._texts.pop(text.name, None)
            why = error if isinstance(error, SpecPairError) else EngineError(f"SGLang's reply cannot be used: {error}")
            self._outputs.put_nowait(CoreOutput(text.name, [], CoreStep([], 0, 0.0, 0), None, True, error=why))
        except Unreachable as error:
            self._leave(str(error))
        else:
            self._texts.pop(text.name, None)

    async def _step(self, text: _Text) -> None:
        try:
            if text.draft:
                await self._judge(text)
            elif text.runs_on:
                await self._decode(text)
            else:
                text.changed.clear()
                await text.changed.wait()
                return
            text.failed = False
        except Unreachable as error:
            if not await self._answers():
                raise
            if text.failed:
                raise EngineError(f"SGLang aborted two passes of a text: {error}") from error
            text.failed = True  # a server that closes idle connections may close one that is just used

    async def _judge(self, text: _Text) -> None:
        draft, start, began = text.draft, len(text.tokens), self._clock()
        prompt = PassPrompt.of([*text.tokens, *draft], text.salt)
        try:
            found = await self._api.judge(prompt, start)
        except asyncio.CancelledError:
            self._start(self._api.abort(prompt.name))
            raise
        rows = [_certain(token, self._api.vocabulary_size) for token in found.choices]
        rulings = judge(chain(draft), rows, text.session.rule, start, frozenset(text.session.ends))
        tokens = [each.token for each in rulings]
        self._tell(text, tokens, CoreStep(draft, found.fed, self._clock() - began, len(self._texts)), found.cached)

    async def _decode(self, text: _Text) -> None:
        """Decode without drafts until the pass ends or the text's request changes."""
        text.decoding = asyncio.create_task(self._decoded(text))
        try:
            await text.decoding
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # else a draft has interrupted it
        finally:
            text.decoding = None

    async def _decoded(self, text: _Text) -> None:
        total, began, over = len(text.tokens), self._clock(), False
        most = min(max(1, min(text.wanted.free, text.session.limit) - total), PASS)
        prompt = PassPrompt.of(list(text.tokens), text.salt)
        try:
            async with aclosing(self._api.decode(prompt, most, sorted(text.session.ends))) as pieces:
                async for piece in pieces:
                    now = self._clock()
                    for token in piece.tokens:
                        if text.over or len(text.tokens) - total >= most:
                            raise UnusableReply(f"more tokens came than the {most} asked for, or some behind the end")
                        seconds = (now - began) / len(piece.tokens)
                        self._tell(text, [token], CoreStep([], piece.fed or 1, seconds, len(self._texts)), piece.cached)
                    began, over = now, piece.done
                    if not over and not text.runs_on:
                        break
                else:
                    if len(text.tokens) == total:
                        raise UnusableReply("a pass ended without a token")
        finally:
            if not over:
                self._start(self._api.abort(prompt.name))

    def _tell(self, text: _Text, tokens: list[int], step: CoreStep, cached: int) -> None:
        """Append tokens to a text, and tell the engine."""
        text.tokens += tokens
        told, text.told_cached = None if text.told_cached else cached, True
        self._outputs.put_nowait(CoreOutput(text.name, tokens, step, told, text.over))

    def _leave(self, reason: str) -> None:
        """Forget all texts until the server is back."""
        if self._away:
            return
        self._away = True
        for text in self._texts.values():
            if text.task is not None and text.task is not asyncio.current_task():
                text.task.cancel()
        self._texts.clear()
        self._outputs.put_nowait(CoreUnreachable(f"SGLang at {self._api.url} does not answer ({reason})"))
        self._look.set()

    async def _answers(self) -> bool:
        """Whether the server is ready. Raises CoreLost if it serves another model, or refuses to name its model."""
        try:
            told = await self._api.model()
        except Unreachable:
            return False
        except Refusal as error:
            raise CoreLost(f"SGLang at {self._api.url} has changed ({error}): restart the verifier") from error
        for name, value in self._identity.items():
            if told.get(name) != value:
                raise CoreLost(
                    f"SGLang at {self._api.url} serves another model, its {name} is {told.get(name)!r} and was "
                    f"{value!r}: restart the verifier"
                )
        return True

    async def _watch(self) -> None:
        """Check the server at intervals, and wait while it is unreachable."""
        missed = 0
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), AWAY_EVERY if self._away else CHECKED_EVERY)
            self._look.clear()
            there = await self._answers()
            missed = 0 if there else missed + 1
            if there and self._away:
                self._away = False
                self._outputs.put_nowait(None)
            elif missed > 1:
                self._leave("asked twice")


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def _certain(token: int, size: int) -> TopLogits:
    """A row of logits with only its likeliest token."""

    def full() -> Logits:
        raise RuntimeError("SGLang returns no logits")

    return TopLogits(np.array([token]), np.zeros(1, np.float32), size, 1.0, 0.0, full)
