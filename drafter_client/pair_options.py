"""The keywords of `Pair` and `AsyncPair`, and what watches the texts of a pair."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

import httpx

from drafter_client.errors import BadOption
from drafter_client.generation.events import Listener
from drafter_client.http.outages import Outage
from drafter_client.http.retries import PATIENCE
from drafter_client.statistics import Stats
from specpair.corpus.draft_corpus import BadCorpus
from specpair.protocol.prompt_progress import PromptProgress

VERIFIER = "http://127.0.0.1:8000"
BRANCHES = 6


class Observer(Protocol):
    """Watches the texts of a pair; `trace.writer.TraceFolder` is one."""

    def run(self, stats: Stats, settings: Mapping[str, Any]) -> AbstractContextManager[Listener]:
        """A context around the run of one text, which yields the listener that takes the text's events.

        `stats`: the statistics of the text, complete when the context is left.
        `settings`: the options of the text.
        """


class PairKeywords(TypedDict, total=False):
    """Keyword arguments of `Pair` and `AsyncPair`; `PairOptions` has the default of each.

    `api_key`: the verifier's key, if it needs one.
    `transport`: an httpx transport that sends all requests; it is not closed.
    `branches`: continuations of a text that are drafted at once, so that drafts are ready for likely recovered tokens.
    `texts`: texts that can be generated at a time.
    `observer`: takes the events of each text, for example a `TraceFolder` (docs/traces.md).
    `memory`: a file in which mode `auto` keeps its measurements of each mode (the command line's is `memory_file()`);
        None: nothing is kept.
    `corpus`: files and folders of the user from which draft tokens are looked up, too (docs/modes.md).
    `patience`: seconds to wait for a lost verifier; a text resumes when the verifier is back, and otherwise raises the
        error that showed the loss.
    `start_patience`: the same for a text that has not begun; None: as long.
    `on_wait`: called while the verifier loads its model, with the progress from 0 to 1, or None if it is unknown.
    `on_outage`: called about once a second during an outage, and when it is over.
    `on_prompt`: called every few seconds while the verifier reads a long prompt.
    `on_notice`: called, in any thread, with what happens to one of several verifiers; None: that is logged.
    `clock`: returns seconds.

    `AsyncPair` calls the functions in a thread other than the event loop's.
    """

    api_key: str | None
    transport: httpx.BaseTransport | None
    branches: int
    texts: int
    observer: Observer | None
    memory: Path | str | None
    corpus: Sequence[Path | str]
    patience: float
    start_patience: float | None
    on_wait: Callable[[float | None], None] | None
    on_outage: Callable[[Outage], None] | None
    on_prompt: Callable[[PromptProgress], None] | None
    on_notice: Callable[[str], object] | None
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """The keywords of one pair, with their defaults; see `PairKeywords`. Raises BadOption for invalid values."""

    api_key: str | None = None
    transport: httpx.BaseTransport | None = None
    branches: int = BRANCHES
    texts: int = 1
    observer: Observer | None = None
    memory: Path | str | None = None
    corpus: Sequence[Path | str] = ()
    patience: float = PATIENCE
    start_patience: float | None = None
    on_wait: Callable[[float | None], None] | None = None
    on_outage: Callable[[Outage], None] | None = None
    on_prompt: Callable[[PromptProgress], None] | None = None
    on_notice: Callable[[str], object] | None = None
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        for name, count in (("branches", self.branches), ("texts", self.texts)):
            if count < 1:
                raise BadOption(f"{name} must be at least 1, got {count}")
        for name, seconds in (("patience", self.patience), ("start_patience", self.start_patience)):
            if seconds is not None and not seconds >= 0:
                raise BadOption(f"{name} must be at least 0 seconds, got {seconds!r}")
        if self.transport is not None and not isinstance(self.transport, httpx.BaseTransport):
            raise BadOption(f"transport must be synchronous, such as an httpx.HTTPTransport, not {self.transport!r}")


@contextmanager
def corpus_errors_named() -> Iterator[None]:
    """A context that raises BadOption for a folder or file of the user that cannot be drafted from."""
    try:
        yield
    except BadCorpus as error:
        raise BadOption(f"corpus: {error}") from None
