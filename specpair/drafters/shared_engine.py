"""Shares one engine among several threads: each has slots of its own, and simultaneous calls run in one pass.

Flat combining (Hendler et al., SPAA 2010): a thread that finds the engine idle becomes the leader. It runs a pass for
all calls that wait, then hands the lead to the first call that arrived meanwhile. So the engine needs no thread of its
own, and no thread waits for one that does not call.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from weakref import ref

import numpy as np

from specpair.engines.backend import Backend, Entry, Logits, Rows, TopLogitsSpec
from specpair.engines.errors import BackendError, CacheFull, EngineFailure, EngineLost, first_line
from specpair.speculation.sampling.top_logits import TopLogits


@dataclass(eq=False, slots=True)
class _Call:
    """A call of one thread: entries of a pass, or an action between passes."""

    batch: list[Entry]
    wanted: Sequence[TopLogitsSpec] | None = None  # None: whole rows of logits
    action: Callable[[], object] | None = None
    results: list[Any] = field(default_factory=list)  # for each entry: its whole rows of logits, or top logits
    error: BaseException | None = None
    leads: bool = False  # whether this call's thread runs the engine, for this call and others
    woken: threading.Event = field(init=False)  # made when the call is queued

    @property
    def tokens(self) -> int:
        return sum(len(entry.tokens) for entry in self.batch)


@dataclass(eq=False, slots=True, weakref_slot=True)
class _WholeRow:
    """Fetches the whole row of logits of a TopLogits, at the latest before the pass that would overwrite the row."""

    _shared: "SharedEngine"
    _fetch: Callable[[], Logits]
    _row: Logits | None = None
    _error: BackendError | None = None

    def __call__(self) -> Logits:
        if self._row is None:  # else an earlier pass made it fetch the row, and it need not wait for the engine
            self._shared.between_passes(self.keep)
        if self._row is None:
            raise EngineFailure(str(self._error or self._shared.failure))
        return self._row

    def keep(self) -> None:
        """Fetch and store the row, once. Only the thread that runs the engine may call this."""
        if self._row is None and self._error is None:
            try:
                self._row = self._fetch().copy()
            except BackendError as error:  # raised when the row is asked for, which may never happen
                self._error = error


class SharedEngine:
    """Lends slots of an engine to threads, in views; only one thread at a time uses the engine itself."""

    def __init__(self, backend: Backend, event: Callable[[], threading.Event] = threading.Event) -> None:
        """`event`: makes the event on which a call waits while others use the engine."""
        self.backend, self._event = backend, event
        self.failure: str | None = None  # the reason, once no pass can run any more
        self._free = list(reversed(range(backend.slots)))
        self._waiting: deque[_Call] = deque()  # in order of arrival; the first one leads next
        self._busy = False  # a call leads, or was told to lead
        self._lock = threading.Lock()  # guards the three above; never held while the engine runs
        self._lent: list[ref[_WholeRow]] = []  # rows of the last pass, which holders of its top logits can fetch

    def view(self, slots: int = 1, batch_tokens: int | None = None) -> "EngineView":
        """An engine of `slots` free slots; its `close` gives them back. Raises CacheFull if fewer are free.

        `batch_tokens`: most tokens of one of its calls, so that others get their turn; None: as many as of a pass.
        """
        with self._lock:
            if not 1 <= slots <= len(self._free):
                raise CacheFull(f"{slots} slots are requested, {len(self._free)} of {self.backend.slots} are free")
            numbers = [self._free.pop() for _ in range(slots)]
        return EngineView(self, numbers, batch_tokens)

    def take_back(self, numbers: Sequence[int]) -> None:
        """Empty slots that were lent, and make them free."""

        def empty() -> None:
            for number in numbers:
                self.backend.release(number)

        self.between_passes(empty)
        with self._lock:
            self._free.extend(numbers)

    def close(self) -> None:
        """Free the model after the pass in progress. Later passes raise EngineLost."""

        def close() -> None:
            self.failure = self.failure or "the engine was closed"
            self.backend.close()

        self._run(_Call([], action=close))

    def extend(self, batch: list[Entry], wanted: Sequence[TopLogitsSpec] | None) -> list[Any]:
        """Run entries in a pass, with those of other calls. Returns, per entry, logits, or what `wanted` asks for.

        The results stay valid after later passes. Raises what the engine raises for the pass.
        """
        call = _Call(batch, wanted)
        self._run(call)
        return call.results

    def between_passes(self, do: Callable[[], object]) -> None:
        """Call `do` while no pass runs. If the engine is lost, `do` is not called: the engine then holds nothing."""

        def unless_lost() -> None:
            if self.failure is None:
                do()

        self._run(_Call([], action=unless_lost))

    def _run(self, call: _Call) -> None:
        """Wait until `call` is done, by this thread or another. Raises the call's error."""
        call.woken = self._event()
        with self._lock:
            self._waiting.append(call)
            if not self._busy:
                self._busy = call.leads = True
        if not call.leads:
            try:
                call.woken.wait()
            except BaseException:  # interrupted: other threads must not wait for this one
                with self._lock:
                    if call in self._waiting:
                        self._waiting.remove(call)
                    if call.leads:
                        self._hand_on()
                raise
        if call.leads:
            self._lead()
        if call.error is not None:
            raise call.error

    def _lead(self) -> None:
        """Run the first waiting call: an action alone, a pass with all calls that fit. Then hand the lead on."""
        with self._lock:
            first, *others = calls = self._take()
        try:
            if first.action is not None:
                first.action()
            else:
                self._pass(calls)
        except BaseException as error:  # any type: the other threads must not wait forever
            first.error = error
            for call in others:
                call.error = _copy_of(error)
            if isinstance(error, EngineLost):
                self.failure = self.failure or str(error)
        with self._lock:
            self._hand_on()
        for call in others:
            call.woken.set()

    def _take(self) -> list[_Call]:
        """Take from the queue the first call, and those that fit into one pass with it, in order of arrival."""
        first = self._waiting.popleft()
        taken, room = [first], self.backend.max_batch_tokens - first.tokens
        if first.action is None:
            for call in list(self._waiting):
                same = call.action is None and (call.wanted is None) == (first.wanted is None)
                if same and call.tokens <= room:
                    self._waiting.remove(call)
                    taken.append(call)
                    room -= call.tokens
        return taken

    def _hand_on(self) -> None:
        """Make the first waiting call lead, if there is one. The lock must be held."""
        self._busy = bool(self._waiting)
        if self._busy:
            self._waiting[0].leads = True
            self._waiting[0].woken.set()

    def _pass(self, calls: Sequence[_Call]) -> None:
        if self.failure is not None:
            raise EngineLost(self.failure)
        for reference in self._lent:
            whole = reference()
            if whole is not None:
                whole.keep()
        self._lent = []
        batch = [entry for call in calls for entry in call.batch]
        wanted = [each for call in calls for each in call.wanted or ()]
        # The engine's arrays are valid until the next pass, which may be another thread's: so each call gets a copy.
        brought: Sequence[Any] = self.backend.extend_top_logits(batch, wanted) if wanted else self.backend.extend(batch)
        parts = (rows.copy() if isinstance(rows, np.ndarray) else [self._lend(top) for top in rows] for rows in brought)
        for call in calls:
            call.results = list(islice(parts, len(call.batch)))

    def _lend(self, top: TopLogits) -> TopLogits:
        top.full = whole = _WholeRow(self, top.full)
        self._lent.append(ref(whole))
        return top


_AS_THE_ENGINE = (  # what a view has in common with its engine
    *("name", "model_name", "vocabulary", "chat_template", "threads", "context_length"),
    *(
        "max_rollback",
        "can_copy",
        "can_splice",
        "has_top_logits",
        "takes_trees",
        "max_leaves",
        "max_nodes",
        "keeps_any_path",
    ),
)


class EngineView(Backend):
    """Slots of a shared engine, as an engine of its own. One thread at a time may use it.

    The results of a pass are valid until the next pass of this view, whatever other threads do.

    `pass_tokens`  most tokens of a pass, which several views may share
    """

    def __init__(self, shared: SharedEngine, numbers: Sequence[int], batch_tokens: int | None = None) -> None:
        """`numbers`: slots of the engine, which are empty and lent to no other view.
        `batch_tokens`: as for `SharedEngine.view`.
        """
        engine = shared.backend
        for name in _AS_THE_ENGINE:
            setattr(self, name, getattr(engine, name))
        self.slots, self.pass_tokens = len(numbers), engine.max_batch_tokens
        self.max_batch_tokens = min(self.pass_tokens, batch_tokens or self.pass_tokens)
        self.kv_bytes = engine.kv_bytes * self.slots // engine.slots
        self._shared, self._numbers = shared, list(numbers)
        # Runs a pass over entries that are numbered as in the engine.
        self._run: Callable[[list[Entry], Sequence[TopLogitsSpec] | None], list[Any]] = shared.extend
        super().__init__()

    def close(self) -> None:
        """Give the slots back."""
        numbers, self._numbers = self._numbers, []
        if numbers:
            self._shared.take_back(numbers)

    def reread(self, slot: int, length: int) -> int:
        self._check_slot(slot)
        return self._shared.backend.reread(self._numbers[slot], length)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        return self._run(self._in_engine(batch), None)

    def _extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> list[Rows]:
        return self._run(self._in_engine(batch), wanted)

    @classmethod
    def extend_together(
        cls, calls: Sequence[tuple["EngineView", Sequence[Entry], Sequence[TopLogitsSpec]]]
    ) -> list[Sequence[Rows]]:
        """`extend_top_logits` of several views of one engine in one pass, all in this thread.

        Raises what the engine raises for the pass; all of these slots are empty then.
        """
        entries: list[Entry] = []
        wanted: list[TopLogitsSpec] = []
        brought: list[Any] = []
        results: list[Sequence[Rows]] = []

        def run(at: int) -> None:
            """Call the views from `at` on, each inside the call of the one before; the last runs the pass of all."""
            view, batch, specs = calls[at]

            def joined(numbered: list[Entry], asked: Sequence[TopLogitsSpec] | None) -> list[Any]:
                first, last = len(entries), at + 1 == len(calls)
                entries.extend(numbered)
                wanted.extend(asked or ())
                if last:
                    brought.extend(view._shared.extend(entries, wanted or None))
                else:
                    run(at + 1)
                return brought[first : first + len(numbered)]

            view._run = joined
            try:
                results.append(view.extend_top_logits(batch, specs))
            finally:
                view._run = view._shared.extend

        run(0)
        return results[::-1]

    def _in_engine(self, batch: Sequence[Entry]) -> list[Entry]:
        """`batch`, with the slot numbers of the shared engine instead of those of this view."""
        return [entry._replace(slot=self._numbers[entry.slot]) for entry in batch]

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        number = self._numbers[entry.slot]
        self._shared.between_passes(lambda: self._shared.backend.keep(number, path))

    def _copy(self, source: int, destination: int, length: int) -> None:
        first, second = self._numbers[source], self._numbers[destination]
        self._shared.between_passes(lambda: self._shared.backend.copy(first, second, length))

    def _splice(self, slot: int, start: int, end: int, source: int | None, first: int) -> None:
        number, other = self._numbers[slot], None if source is None else self._numbers[source]
        self._shared.between_passes(lambda: self._shared.backend.splice(number, start, end, other, first))

    def _release(self, slot: int) -> None:
        number = self._numbers[slot]
        self._shared.between_passes(lambda: self._shared.backend.release(number))


def _copy_of(error: BaseException) -> BackendError:
    """A copy of the error for another thread: if two threads raised one object, its traceback would mix both."""
    if isinstance(error, BackendError):
        return type(error)(str(error))
    return EngineFailure(f"a shared pass failed: {first_line(error)}")
