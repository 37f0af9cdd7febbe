"""Options of one text: its length, how it is sampled, and how it is drafted. Options of a pair: the keywords of `Pair`
and `AsyncPair`."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypedDict

import httpx

from drafter_client.errors import BadOption
from drafter_client.generation.events import Listener
from drafter_client.http.outages import Outage
from drafter_client.http.retries import PATIENCE
from drafter_client.http.trust import SYSTEM, Trust
from drafter_client.statistics import Stats
from specpair.corpus.draft_corpus import BadCorpus
from specpair.options.option import described, option, options_of
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.response_fields import SamplingReport
from specpair.protocol.terminal_text import is_text
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from specpair.speculation.policy.experience import DraftingPolicy, policy_at
from specpair.speculation.sampling import gumbel
from specpair.speculation.text_options import TextSpec

# Options that are named in results and traces whether or not they were given. Others are left out where they were not,
# so that a result keeps its options when there are new ones.
_ALWAYS = (
    *("max_tokens", "temperature", "top_k", "top_p", "seed", "strategy", "threshold", "explain"),
    *("mode", "draft_n", "lookup", "lockstep"),
)
VERIFIER = "http://127.0.0.1:8000"
BRANCHES = 6
_ALWAYS_SENT = ("max_tokens", "temperature", "top_k", "top_p", "seed")


class Mode(StrEnum):
    """Which machine drafts. Under the strategies in `DRAFTER_INVARIANT` the text is the same in every mode."""

    REMOTE = "remote"  # this machine
    FUSED = "fused"  # the verifier, with a draft model of its own
    TARGET = "target"  # none: the target decodes alone
    AUTO = "auto"  # the one of the fastest of these modes, as measured during generation


DEFAULT_MODE = Mode.AUTO


def _wrong_prediction(given: Any) -> str | None:
    if isinstance(given, str) or (isinstance(given, Sequence) and all(type(token) is int for token in given)):
        return None
    return f"prediction must be text or token ids, got {type(given).__name__}"


def _wrong_stop(given: Any) -> str | None:
    stops = (given,) if isinstance(given, str) else given
    if not isinstance(stops, Sequence) or any(type(stop) is not str for stop in stops):
        return f"stop must be strings, got {given!r}"
    return None if all(stops) else "stop holds an empty string: give each at least one character"


def _stop(text: str) -> str:
    """A stop string as it was typed. Raises ValueError."""
    if not text:
        raise ValueError("is empty: give at least one character")
    if not is_text(text):
        raise ValueError("is not valid text in this terminal's encoding: use UTF-8")
    return text


@dataclass(frozen=True, kw_only=True)
class Options(TextSpec):
    """How to continue a text. Raises BadOption for invalid values."""

    max_tokens: int = option(128, "maximum number of tokens to generate", ge=1, group="text", placeholder="N")
    mode: Mode = option(
        DEFAULT_MODE,
        "which machine drafts: this one (remote), the verifier (fused), none (target), or the fastest "
        "of these (auto); auto is always remote with lockstep, a fixed draft length, or a strategy "
        "for which the text depends on the drafts",
        group="drafting",
    )
    draft_n: int | None = option(
        None,
        "draft tokens in each verify request, in the modes remote and fused",
        auto=True,
        group="drafting",
        ge=0,
        placeholder="auto|N",
    )
    lookup: bool = option(
        True,
        "also look up draft tokens in the text itself, where they are likelier to be accepted than the draft model's",
        group="drafting",
    )
    prediction: str | Sequence[int] | None = option(
        None,
        "the expected text, as text or token ids: draft tokens are also taken from it where it fits; "
        "mode fused then needs no draft model",
        wrong=_wrong_prediction,
        placeholder="TEXT",
    )
    stop: str | Sequence[str] = option(
        (),
        "end the text before the first of these strings; names of control tokens work, too",
        item=_stop,
        items=tuple,
        wrong=_wrong_stop,
        group="text",
        placeholder="TEXT",
    )
    lockstep: bool = option(
        False,
        "draft, send, wait: do not draft during a verify request; some strategies always work in lockstep",
        group="drafting",
    )

    def __post_init__(self) -> None:
        for name, known in (("strategy", Strategy), ("mode", Mode)):
            with suppress(ValueError):
                object.__setattr__(self, name, known(getattr(self, name)))  # accepts a plain string such as "target"
        wrong = self.complaint() or self._wrong_together()
        if wrong is not None:
            raise BadOption(wrong)
        if self.prediction is not None and not isinstance(self.prediction, str):
            object.__setattr__(self, "prediction", tuple(self.prediction))  # so that nobody changes it
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))

    def _wrong_together(self) -> str | None:
        if self.prediction is not None and self.mode is Mode.TARGET:
            return "prediction: in mode target nothing is drafted; the mode fused needs no draft model for it"
        if self.prediction is not None and self.strategy is Strategy.GREEDY:
            return f"prediction: the strategy {self.strategy} accepts no draft tokens, leave one of the two out"
        return None

    def settled(self) -> "Options":
        """Return these options with a seed: the given one, else a random one."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(gumbel.SEED_LIMIT))

    @property
    def predicted(self) -> bool:
        """Whether there is a prediction of the text."""
        return self.prediction is not None

    @property
    def prediction_ids(self) -> list[int] | None:
        """The prediction, which must be token ids by now; None: there is none."""
        assert not isinstance(self.prediction, str)
        return None if self.prediction is None else list(self.prediction)

    @property
    def one_mode(self) -> str | None:
        """Why mode `auto` generates this text in one mode, which is the first of the pair's; None: it may choose.

        The reason names an option that asks for drafts of one kind: a mode without drafts, or with others, does not
        satisfy it. Under strategies for which the text depends on the drafts, the same seed would
        give different texts.
        """
        if self.strategy not in DRAFTER_INVARIANT:
            return f"the strategy {self.strategy}"
        if self.lockstep:
            return "lockstep"
        return None if self.draft_n is None else "a fixed draft length"

    def settled_mode(self, modes: Sequence[Mode]) -> Mode:
        """The mode of this text: the one in its options, or what `auto` is settled to before the text.

        `modes`: those that the pair and its verifier offer, without `auto`, drafting on this machine first if it can.
        """
        settles = self.mode is Mode.AUTO and modes and (len(modes) == 1 or self.one_mode is not None)
        return modes[0] if settles else self.mode

    def in_mode(self, mode: Mode) -> "Options":
        """These options in another mode; without a prediction where nothing drafts."""
        return replace(self, mode=mode, prediction=None if mode is Mode.TARGET else self.prediction)

    def cold(self) -> "Options":
        """These options with a salt of their own: a measured text must not reuse the KV cache of another text."""
        return replace(self, cache_salt=secrets.token_hex(16))

    @property
    def lockstep_only(self) -> bool:
        """Whether this text is generated in lockstep, as requested or as the strategy requires."""
        return self.lockstep or self.strategy not in DRAFTER_INVARIANT

    def with_spec(self, spec: TextSpec, **others: Any) -> "Options":
        """These options with those of `spec`, and with `others`."""
        given = {name: getattr(spec, name) for name in options_of(TextSpec) if name not in ("strategy", "threshold")}
        return replace(self, **given | others)

    def described(self) -> dict[str, Any]:
        """Return the sampling settings as the verifier reports them; the seed is 0 if none was given."""
        return SamplingReport.of(replace(self, seed=self.seed or 0)).settings()

    def settings(self) -> dict[str, Any]:
        """Return options as JSON values: those in `_ALWAYS`, and the others where they differ from their default."""
        return self._named(dict.fromkeys((*_ALWAYS, *options_of(Options))), _ALWAYS)

    def request(self) -> dict[str, Any]:
        """Return the fields by which these options go into requests to `/prefill` and `/generate`."""
        return self._named(options_of(TextSpec), _ALWAYS_SENT)

    def generate_request(self) -> dict[str, Any]:
        """Return the fields of a request to `/generate` in their mode; a prediction must be token ids."""
        fused = {} if self.mode is not Mode.FUSED else {"draft_n": self.draft_n, "prediction_ids": self.prediction_ids}
        given = {name: value for name, value in fused.items() if value is not None}
        return self.request() | {"mode": str(self.mode)} | given

    def _named(self, options: Iterable[str], always: Collection[str]) -> dict[str, Any]:
        """Those of `options` that differ from their default, and those in `always`, as JSON values."""
        all_options = {name: options_of(Options)[name] for name in options}
        values = {name: (each, getattr(self, name)) for name, each in all_options.items()}
        return {
            name: each.to_json(value)
            for name, (each, value) in values.items()
            if name in always or value != each.default
        }


Options.__doc__ = described(Options)


def foreign_id(tokens: Sequence[int], size: int) -> str | None:
    """The first of `tokens` that is no id of the target's vocabulary of `size` ids, in words; None: all are."""
    wrong = next((token for token in tokens if not 0 <= token < size), None)
    return None if wrong is None else f"{wrong}, which is no token id of the target: its ids are 0 to {size - 1}"


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
    `trust`: whose certificates are taken: those that the system trusts, or a pinned host's alone.
    `transport`: an httpx transport that sends all requests; it is not closed. It has its own trust.
    `branches`: continuations of a text that are drafted at once, so that drafts are ready for likely recovered tokens.
    `texts`: texts that can be generated at a time.
    `observer`: takes the events of each text, for example a `TraceFolder` (docs/traces.md).
    `memory`: a file in which mode `auto` keeps its measurements of each mode (the command line's is `memory_file()`);
        None: nothing is kept.
    `corpus`: files and folders of the user from which draft tokens are looked up, too (docs/modes.md).
    `policy`: a subclass of `DraftingPolicy`, or its name as `module:Class`: it decides what this machine drafts
        (docs/research.md).
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
    trust: Trust
    transport: httpx.BaseTransport | None
    branches: int
    texts: int
    observer: Observer | None
    memory: Path | str | None
    corpus: Sequence[Path | str]
    policy: type[DraftingPolicy] | str
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
    trust: Trust = SYSTEM
    transport: httpx.BaseTransport | None = None
    branches: int = BRANCHES
    texts: int = 1
    observer: Observer | None = None
    memory: Path | str | None = None
    corpus: Sequence[Path | str] = ()
    policy: type[DraftingPolicy] | str = DraftingPolicy
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
        if self.transport is not None and self.trust.pin:
            raise BadOption("a pinned host needs connections of our own: leave out either trust or transport")
        try:
            _ = self.policy_class
        except ValueError as error:
            raise BadOption(f"policy: {error}") from None

    @property
    def policy_class(self) -> type[DraftingPolicy]:
        if isinstance(self.policy, type) and issubclass(self.policy, DraftingPolicy):
            return self.policy
        return policy_at(str(self.policy))


@contextmanager
def corpus_errors_named() -> Iterator[None]:
    """A context that raises BadOption for a folder or file of the user that cannot be drafted from."""
    try:
        yield
    except BadCorpus as error:
        raise BadOption(f"corpus: {error}") from None
