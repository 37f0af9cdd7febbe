"""The server's draft model: loaded after the target, timed once, shared by the texts of server-side drafting."""

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from backends.machine import cores_to_use
from backends.registry import load_draft
from specpair.drafters.base import NGRAM_LOOKUP, Drafter, NgramDrafter
from specpair.drafters.composed_drafter import can_compose
from specpair.drafters.shared_engine import SharedEngine
from specpair.drafters.warm_engine import WarmEngine, pass_times, warmest
from specpair.engines.backend import Backend, Progress
from specpair.engines.errors import BackendError, CacheFull, ModelLoadError, first_line
from specpair.engines.vocabulary import cannot_draft
from specpair.grammar.of_text import prepare_grammars
from specpair.speculation.draft import DraftSource
from specpair.speculation.policy.cost_by_width import LEAST
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.choice import NGRAM
from verifier_server.engine.interface import EngineInfo
from verifier_server.settings import Settings

DRAFT_MODEL = "the draft model: "  # how errors of its engine begin
PASS_TOKENS = 128  # of a text that the draft model reads, in a pass for which the draft steps of others may wait


class SharedDraftModel:
    """Drafts for several texts at once. Thread-safe, except `close`.

    Each text has a slot, and if the engine has enough of them and can splice, a spare one: see `composed_drafter`.
    """

    def __init__(
        self,
        backend: Backend | None,
        slots: int,
        target: Backend | EngineInfo,
        clock: Callable[[], float],
        most_kept: int | None = None,
        *,
        one_scope: bool = False,
        lookup: bool = False,
    ) -> None:
        """`backend`: a model with the vocabulary of `target`; None: its head drafts, and without a head or with
            `lookup` drafts are looked up.
        `slots`: how many texts it drafts for at once.
        `clock`: in seconds.
        `most_kept`: tokens of texts that have ended that are kept; None: as many as the slots hold.
        `one_scope`: whether texts of all scopes share what was read.
        """
        self.slots, self._most_kept, self._one_scope = slots, most_kept, one_scope
        self._shared = SharedEngine(backend) if backend is not None else None
        self._free: list[WarmEngine] = []
        self._choosing = threading.Lock()  # guards it; the engines that were used longest ago come first
        self._vocabulary_size = target.vocabulary.size
        self._failed: str | None = None  # why the latest draft step failed
        self.head_depth = 0 if lookup else target.head_depth  # tokens that the target's head drafts, at most
        self.name = target.head_name if self.head_depth else NGRAM_LOOKUP
        self.step_times = dict[DraftSource, float]()  # seconds of a draft step, of each source but lookup
        if self.head_depth:
            self.step_times[DraftSource.HEAD] = target.head_time if isinstance(target, EngineInfo) else LEAST
        # Whether draft and target passes use the same CPU cores or device, and so slow each other. Two models that both
        # run elsewhere than on the CPU count as sharing a device.
        self.shares_device = backend is not None and _share_device(backend.threads, target.threads)
        if backend is not None and self._shared is not None:
            times, spare = pass_times(backend, clock), backend.slots >= 2 * slots and can_compose(backend)
            views = [self._shared.view(2 if spare else 1, PASS_TOKENS) for _ in range(slots)]
            self._free = [WarmEngine(view, times, whole=not self.shares_device) for view in views]
            self.step_times[DraftSource.MODEL] = times.token
            self.name = f"{backend.model_name} and {target.head_name}" if self.head_depth else backend.model_name

    @property
    def step_time(self) -> float:
        """Seconds of a draft step, of the fastest source."""
        return min(self.step_times.values(), default=LEAST)

    @property
    def looks_up(self) -> bool:
        """Whether drafts come from lookup in the text, without a model or a head."""
        return not self.step_times

    @property
    def has_model(self) -> bool:
        return self._shared is not None

    @property
    def failure(self) -> str | None:
        """Why the latest draft step failed; None if it succeeded."""
        return (None if self._shared is None else self._shared.failure) or self._failed

    def failed(self, error: Exception) -> str:
        """Note that a draft step failed. Returns the reason, in one line."""
        self._failed = first_line(error)
        return self._failed

    def worked(self) -> None:
        """Note that a draft step succeeded."""
        self._failed = None

    @contextmanager
    def drafter(self, spec: TextSpec, prompt: Sequence[int] = (), scope: Hashable = None) -> Iterator[Drafter]:
        """A context with a drafter for one text, which reuses the KV cache of an ended text of this scope.

        Raises CacheFull for more than `slots` at once.
        """
        if self._shared is None:
            yield NgramDrafter()
            return
        scope = None if self._one_scope else scope
        with self._choosing:
            if not self._free:
                raise CacheFull(f"all {self.slots} slots of the draft model are in use")
            engine = warmest([(each, each) for each in self._free], prompt, scope)
            self._free.remove(engine)
        try:
            yield engine.drafter(spec, self._vocabulary_size, prompt, scope)
        finally:
            with self._choosing:
                self._free.append(engine)
                beyond = 0 if self._most_kept is None else sum(each.held for each in self._free) - self._most_kept
                for each in self._free:
                    if beyond > 0:
                        beyond -= each.held
                        each.empty()

    def close(self) -> None:
        """Free the model."""
        if self._shared is not None:
            self._shared.close()


def _share_device(threads: int, target_threads: int) -> bool:
    if not (threads or target_threads):
        return True
    return threads > 0 and target_threads > 0 and threads + target_threads > cores_to_use()


def load_draft_model(
    settings: Settings,
    target: Backend | EngineInfo,
    progress: Progress,
    clock: Callable[[], float],
    given: Backend | None = None,
) -> SharedDraftModel | None:
    """The draft model that `settings` name, or the one `given`, with the target's own head; None if there is neither.

    `clock`: in seconds.

    Raises ModelLoadError, also for a model that cannot draft for this target.
    """
    if given is None and (not settings.drafts or settings.draft_engine == NGRAM):
        if target.head_depth:  # beside which lookup comes first in any case
            return SharedDraftModel(None, settings.draft_slots_for(target.slots), target, clock)
        return lookup_alone(settings, target, clock) if settings.drafts else None
    options = settings.draft_options(target.slots, target.context_length, target.devices)
    with ExitStack() as on_failure:
        try:
            backend = given or load_draft(settings.draft_engine, options, progress)
            on_failure.callback(backend.close)
            differs = cannot_draft(backend.model_name, backend.vocabulary, target.model_name, target.vocabulary)
            if differs is not None:
                raise ModelLoadError(differs)
            if backend.vocabulary.fingerprint == target.vocabulary.fingerprint:
                backend.vocabulary.derived = target.vocabulary.derived  # a grammar is compiled once for both
            prepare_grammars(backend.vocabulary)
            kept, one_scope = settings.most_kept(target), settings.share_prefixes
            texts = min(options.slots or backend.slots, backend.slots)
            draft = SharedDraftModel(backend, texts, target, clock, kept, one_scope=one_scope)
        except BackendError as error:
            raise ModelLoadError(DRAFT_MODEL + settings.explained(error, of_draft=True)) from error
        on_failure.pop_all()
    return draft


def lookup_alone(settings: Settings, target: Backend | EngineInfo, clock: Callable[[], float]) -> SharedDraftModel:
    """Drafting by lookup, without a model. Arguments as for `load_draft_model`."""
    return SharedDraftModel(None, settings.draft_slots_for(target.slots), target, clock, lookup=True)
