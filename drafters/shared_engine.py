"""One engine for several users: each has rows of its own, and what they ask for at the same time is one pass.

Flat combining (Hendler et al., SPAA 2010): whoever finds the engine idle runs it, for all who wait by then, and hands
it on to the first who came meanwhile. No thread of its own is needed, and nobody waits for somebody who does not call.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from weakref import ref

from backends.base import (
    Backend,
    BackendError,
    EngineFailure,
    EngineLost,
    Entry,
    HeadOf,
    Logits,
    OutOfRoom,
    first_line,
)
from speculation.sampling.top_logits import TopLogits


@dataclass(eq=False, slots=True)
class _Call:
    """What one thread waits for: entries of a pass, or something to do between passes."""

    batch: list[Entry]
    wanted: Sequence[HeadOf] | None = None  # None: whole rows
    do: Callable[[], object] | None = None
    brought: list[Any] = field(default_factory=list)  # of each entry: logits, or heads where these are wanted
    error: BaseException | None = None
    leads: bool = False  # its thread runs the engine, for itself and others
    woken: threading.Event = field(default_factory=threading.Event)

    @property
    def tokens(self) -> int:
        return sum(len(entry.tokens) for entry in self.batch)


class _Whole:
    """Fetches a whole row behind a head, at the latest before the pass that would overwrite it."""

    __slots__ = ("__weakref__", "_error", "_fetch", "_row", "_shared")

    def __init__(self, shared: "SharedEngine", fetch: Callable[[], Logits]) -> None:
        self._shared, self._fetch = shared, fetch
        self._row: Logits | None = None
        self._error: BackendError | None = None

    def __call__(self) -> Logits:
        if self._row is None:  # else it was kept before a pass of others, and need not wait for the next
            self._shared.between_passes(self.keep)
        if self._row is None:
            raise EngineFailure(str(self._error or self._shared.failure))
        return self._row

    def keep(self) -> None:
        """Fetch it, unless that was done. By whoever has the engine."""
        if self._row is None and self._error is None:
            try:
                self._row = self._fetch().copy()
            except BackendError as error:  # for whoever asks for the row: nobody may
                self._error = error


class SharedEngine:
    """Lends rows of an engine. From any thread; the engine itself is used by one thread at a time."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.failure: str | None = None  # why there will be no more passes, once that is so
        self._free = list(reversed(range(backend.rows)))
        self._waiting: deque[_Call] = deque()  # in order of arrival; the first of them leads next
        self._busy = False  # somebody leads, or was told to
        self._lock = threading.Lock()  # over these; never held while the engine works
        self._heads: list[ref[_Whole]] = []  # of the last pass: of those that are still held, rows may be wanted

    def view(self, rows: int = 1) -> "View":
        """An engine of so many rows that are free. Raises OutOfRoom when there are fewer. Give it back by `close`."""
        with self._lock:
            if not 1 <= rows <= len(self._free):
                raise OutOfRoom(f"{rows} rows are wanted, {len(self._free)} of {self.backend.rows} are free")
            numbers = [self._free.pop() for _ in range(rows)]
        return View(self, numbers)

    def take_back(self, numbers: Sequence[int]) -> None:
        """Empty rows that were lent, and let others have them."""

        def empty() -> None:
            for number in numbers:
                self.backend.release(number)

        self.between_passes(empty)
        with self._lock:
            self._free.extend(numbers)

    def close(self) -> None:
        """Free the model when the pass under way is over. Whoever still asks for one is told EngineLost."""

        def close() -> None:
            self.failure = self.failure or "the engine was closed"
            self.backend.close()

        self._run(_Call([], do=close))

    def extend(self, batch: list[Entry], wanted: Sequence[HeadOf] | None) -> list[Any]:
        """Entries in a pass with those of others; of each its logits, or heads where these are wanted, to be kept.

        Raises what the engine raises for the pass that these entries are part of.
        """
        call = _Call(batch, wanted)
        self._run(call)
        return call.brought

    def between_passes(self, do: Callable[[], object]) -> None:
        """Do something with the engine while no pass runs; nothing where it is lost: then it holds nothing."""

        def unless_lost() -> None:
            if self.failure is None:
                do()

        self._run(_Call([], do=unless_lost))

    def _run(self, call: _Call) -> None:
        """Have `call` done, by this thread or another."""
        with self._lock:
            self._waiting.append(call)
            if not self._busy:
                self._busy = call.leads = True
        if not call.leads:
            try:
                call.woken.wait()
            except BaseException:  # interrupted: others must not wait for this thread
                self._withdraw(call)
                raise
        if call.leads:
            self._lead()
        if call.error is not None:
            raise call.error

    def _withdraw(self, call: _Call) -> None:
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
            if call.leads:
                self._hand_on()

    def _lead(self) -> None:
        """Run what waits: something to do, or as much as one pass takes."""
        with self._lock:
            own, *others = calls = self._take()
        try:
            if own.do is not None:
                own.do()
            else:
                self._pass(calls)
        except BaseException as error:  # whatever it is, the others must not wait for ever
            own.error = error
            for call in others:
                call.error = _for_another(error)
            if isinstance(error, EngineLost):
                self.failure = self.failure or str(error)
        with self._lock:
            self._hand_on()
        for call in others:
            call.woken.set()

    def _take(self) -> list[_Call]:
        """The first that waits, and what goes into one pass with it, in order of arrival."""
        first = self._waiting.popleft()
        taken, room = [first], self.backend.max_batch_tokens - first.tokens
        if first.do is None:
            for call in list(self._waiting):
                same = call.do is None and (call.wanted is None) == (first.wanted is None)
                if same and call.tokens <= room:
                    self._waiting.remove(call)
                    taken.append(call)
                    room -= call.tokens
        return taken

    def _hand_on(self) -> None:
        """Have the first that waits lead, if anybody does. With the lock held."""
        self._busy = bool(self._waiting)
        if self._busy:
            self._waiting[0].leads = True
            self._waiting[0].woken.set()

    def _pass(self, calls: Sequence[_Call]) -> None:
        if self.failure is not None:
            raise EngineLost(self.failure)
        for held in self._heads:
            whole = held()
            if whole is not None:
                whole.keep()
        self._heads = []
        batch = [entry for call in calls for entry in call.batch]
        wanted = [each for call in calls for each in call.wanted or ()]
        # The engine's arrays hold until the next pass, which may be anybody's: what is lent is a copy.
        brought: list[Any]
        if wanted:
            brought = [[self._lend(head) for head in heads] for heads in self.backend.heads(batch, wanted)]
        else:
            brought = [rows.copy() for rows in self.backend.extend(batch)]
        parts = iter(brought)
        for call in calls:
            call.brought = list(islice(parts, len(call.batch)))

    def _lend(self, head: object) -> TopLogits:
        assert isinstance(head, TopLogits), "an engine that has heads gives such"
        head.full = whole = _Whole(self, head.full)
        self._heads.append(ref(whole))
        return head


class View(Backend):
    """Rows of a shared engine, as an engine of their own. Used by one thread at a time.

    What a pass brought is valid until the next pass of this view, whatever others do.
    """

    def __init__(self, shared: SharedEngine, numbers: Sequence[int]) -> None:
        """`numbers`: of the engine's rows, which are empty and nobody else's."""
        engine = shared.backend
        self.name, self.model_name, self.vocabulary = engine.name, engine.model_name, engine.vocabulary
        self.rows, self.context_length = len(numbers), engine.context_length
        self.max_batch_tokens, self.max_rollback = engine.max_batch_tokens, engine.max_rollback
        self.can_copy, self.has_heads, self.chat_template = engine.can_copy, engine.has_heads, engine.chat_template
        self.kv_bytes = engine.kv_bytes * self.rows // engine.rows
        self._shared, self._numbers = shared, list(numbers)
        super().__init__()

    def close(self) -> None:
        """Give the rows back."""
        numbers, self._numbers = self._numbers, []
        if numbers:
            self._shared.take_back(numbers)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        return self._shared.extend(self._there(batch), None)

    def _heads(self, batch: Sequence[Entry], wanted: Sequence[HeadOf]) -> list[list[TopLogits]]:
        return self._shared.extend(self._there(batch), wanted)

    def _there(self, batch: Sequence[Entry]) -> list[Entry]:
        return [entry._replace(row=self._numbers[entry.row]) for entry in batch]

    def _copy(self, source: int, destination: int, length: int) -> None:
        there, other = self._numbers[source], self._numbers[destination]
        self._shared.between_passes(lambda: self._shared.backend.copy(there, other, length))

    def _release(self, row: int) -> None:
        number = self._numbers[row]
        self._shared.between_passes(lambda: self._shared.backend.release(number))


def _for_another(error: BaseException) -> BackendError:
    """The same error for another thread: one that two raise would tell a traceback of both."""
    if isinstance(error, BackendError):
        return type(error)(str(error))
    return EngineFailure(f"a pass that was shared failed: {first_line(error)}")
