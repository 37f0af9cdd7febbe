"""The interface between the service and an engine that commits tokens, whatever runs the model.

`Engine` is one that has logits: a thread with a scheduler and a `Backend`. An engine that commits tokens by itself
stands behind the same port.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from specpair.engines.backend import Backend
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.errors import SpecPairError
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.drafting.tree import Proposal
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.head_drafts import HeadQuestion
from verifier_server.sessions import Session

AWAY_WAIT = 2  # seconds after which a request is worth another try while what an engine needs is away


class EngineObserver:
    """Receives the engine's events. This class ignores them.

    The engine's thread makes the calls and waits for them, so they have to be fast. Times are in seconds.
    """

    def waited(self, seconds: float) -> None:
        """A request waited so long in the queue for its first pass."""

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        """A pass over `tokens` tokens of `sessions` sessions ended.

        `prefilled`: how many tokens were fed without being judged, as those of a prompt.
        """

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        """A pass committed `tokens` tokens, and judged `judged` draft tokens.

        `since`: the time since the tokens before; if it was the `first` pass of the session that committed any, since
        its first request was queued.
        """

    def target_decoded(self, tokens: int) -> None:
        """A self-continuation step committed `tokens` tokens; `committed` is called, too."""

    def ended(self, session: Session, seconds: float) -> None:
        """The text of `session` has ended, so long after its first request was queued."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine's load at a moment."""

    waiting: int  # requests that wait for a pass
    running: int  # requests that the pass under way may answer
    full: bool  # whether no more requests may wait
    slots: int
    slots_in_use: int
    cached_tokens: int  # in all slots
    kept_tokens: int  # of these, those of texts that have ended
    context_length: int  # tokens that a slot can hold
    evictions: int  # how often a session whose text had not ended has lost its slot to another one


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The model and the capacity of a loaded engine. Fixed."""

    name: str  # of the engine
    model_name: str
    vocabulary: Vocabulary
    slots: int  # texts whose KV cache it holds at once
    context_length: int  # tokens of a text, at most
    max_drafts: int  # draft tokens that it judges at once
    kv_bytes: int  # of the KV cache
    threads: int  # CPU threads that a pass keeps busy; 0: it runs on other devices
    chat_template: str | None
    devices: int = 1  # that share the model
    takes_trees: bool = False  # whether it judges drafts that are trees as such, and not their likeliest chains
    max_leaves: int | None = None  # of a tree, at most; None: any number
    max_nodes: int | None = None  # of a tree, at most; None: any number
    head_depth: int = 0  # tokens that the model's head drafts in a row, at most; 0: it has none
    head_name: str = ""  # what kind of head that is
    head_time: float = 0.0  # seconds of a step of the head
    strategies: Sequence[Strategy] = tuple(Strategy)  # by which it judges
    lacks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # options of texts, and why not

    @classmethod
    def of(cls, backend: Backend, max_drafts: int, head_time: float = 0.0) -> "EngineInfo":
        """The info of an engine over a backend. `head_time`: seconds of a step of the model's head."""
        same = ["name", "model_name", "vocabulary", "slots", "context_length", "kv_bytes", "threads", "chat_template"]
        same += ["devices", "takes_trees", "max_leaves", "max_nodes", "head_depth", "head_name"]
        return cls(max_drafts=max_drafts, head_time=head_time, **{name: getattr(backend, name) for name in same})


class TokenEngine(Protocol):
    """An engine that commits tokens to sessions. Thread-safe."""

    failure: str | None  # why no more tokens will be committed; None while they are
    away: str | None  # what has to come back by itself before tokens are committed; None: nothing
    busy_since: float | None  # `time.monotonic` at the last progress with work that is not over; None: there is none

    @property
    def info(self) -> EngineInfo: ...

    @property
    def ended(self) -> SpecPairError | None:
        """The error that answers requests once the engine has ended; None while it commits tokens."""

    @property
    def state(self) -> EngineState:
        """The engine's load now."""

    def ask_head(self, asked: Sequence[HeadQuestion]) -> list[Proposal | None]:
        """What the model's own head drafts, between two passes; None where the engine is not in step with a question,
        or the head fails. Waits for it. Raises SpecPairError once the engine has ended."""

    def submit(self, *requests: Request) -> None:
        """Queue requests, which can share a pass. `done` of each request gets errors, Overloaded included."""

    def forget(self, session: Session) -> None:
        """Free the KV cache of a removed session, and fail its waiting requests."""

    def replace(self, old: Session, new: Session) -> None:
        """Remove `old`; `new` gets its KV cache, with the prefix of tokens that both share."""

    def is_resident(self, session: Session) -> bool:
        """Whether the engine holds the KV cache of `session`."""

    def prompt_progress(self, session: Session) -> PromptProgress | None:
        """How many tokens of the session's prompt are read; None: all."""

    def shut_down(self) -> None:
        """Commit nothing more, and answer waiting requests with ShuttingDown."""

    def stop(self) -> None:
        """Shut down, wait for the end, and free the model."""

    def check_integrity(self) -> None:
        """Raise an error if the engine's state is inconsistent."""


class Serving(NamedTuple):
    """Arguments of an engine that begins to serve. Times are in seconds."""

    info: EngineInfo  # with the names and the chat template by which it serves
    clock: Callable[[], float]
    deliver: Callable[[], None]  # called from the engine's thread after answers were given
    observer: EngineObserver
    on_failure: Callable[[], object] = lambda: None  # called when no more tokens will be committed, and texts know it


@dataclass
class LoadedEngine:
    """An engine whose model is loaded, before it serves."""

    info: EngineInfo
    chat_templates: Mapping[str, str]  # all that the model's files have, by name
    chat_template: str | None
    pass_times: Sequence[float]  # seconds of passes over 1, 2, … tokens
    serve: Callable[[Serving], TokenEngine]
    close: Callable[[], object]  # frees the model, unless it serves
