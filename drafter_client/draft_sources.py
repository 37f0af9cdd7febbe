"""Sources of drafts: a draft model with the target's vocabulary or another one, prompt lookup, or a custom drafter."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from backends.machine import cores_to_use, machine_id
from backends.named_model import file_of, known_drafters
from backends.registry import load, load_draft
from drafter_client.display.progress import ProgressReport, silent
from drafter_client.errors import BadOption, VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary, check_vocabulary, texts_vocabulary
from models import DEFAULT_DRAFT
from specpair.drafters.base import NGRAM_LOOKUP, Drafter, NgramDrafter
from specpair.drafters.custom import CheckedDrafter, FallbackDrafter
from specpair.drafters.draft_model import BRANCH_CELLS
from specpair.drafters.shared_engine import SharedEngine
from specpair.drafters.translation import TranslatingDrafter
from specpair.drafters.warm_engine import UNTIMED, PassTimes, WarmEngine, pass_times
from specpair.engines.backend import Backend
from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import FASTEST, MOST_SLOTS, LoadOptions
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.service_responses import ModelInfo
from specpair.protocol.terminal_text import one_line
from specpair.speculation.drafting.composed_context import SIZES
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec

_log = logging.getLogger("specpair.drafter")


MakeDrafter = Callable[[TextSpec, Sequence[int]], Drafter]  # of a text, by its options and the ids of its prompt


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """An opened source: functions that make drafters, the target's info, and the vocabulary of the text."""

    name: str | None  # of the drafter; None: nothing is drafted on this machine
    info: ModelInfo
    vocabulary: Vocabulary
    drafters: Sequence[MakeDrafter]  # one for each text that is generated at a time
    # Makes one for another model of the verifier, of the same source: takes a connection and the result of its `model`.
    # Raises VocabularyMismatch.
    anew: Callable[[VerifierClient, ModelInfo], "OpenedSource"]
    looks_up: bool = False  # whether the drafters draft by prompt lookup, so that nothing else has to
    threads: int = 0  # CPU threads that a draft step keeps busy
    warm: Sequence[WarmEngine] = ()  # the engines of `drafters`, which hold what they drafted for; or none
    times: PassTimes | None = None  # of the draft model; None: it has to be timed in a text, or there is none

    @property
    def shares_cores(self) -> bool:
        """Whether draft steps and verifier passes need the same cores of this machine, so that each slows the other."""
        return share_cores(self.info, self.threads)


def share_cores(info: ModelInfo, threads: int) -> bool:
    """Whether draft steps on `threads` threads and the verifier's passes need the same cores of this machine."""
    theirs = info.threads if info.machine == machine_id() else 0
    return threads > 0 and theirs > 0 and threads + theirs > cores_to_use()


class Source(Protocol):
    """A source of drafts for a `Pair`."""

    def open(self, client: VerifierClient, branches: int, texts: int) -> AbstractContextManager[OpenedSource]:
        """Prepare to draft for the verifier of `client`: `texts` texts at a time, `branches` continuations of each.

        Raises ModelLoadError, VocabularyMismatch, and what the client raises.
        """


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A draft model on this machine.

    `engine`: options to load it with, but for its model, its slots and its `weights`.
    `hf`: its name on Hugging Face, in place of `path`, as `user/repo:Q4_K_M`; it is fetched unless it is in the cache.
    `weights`: "auto" computes with a copy that is faster on this machine, where the engine can make one, else "stored".
    """

    path: Path | str = DEFAULT_DRAFT
    backend: str = "llama_cpp"
    engine: LoadOptions = field(default_factory=LoadOptions)
    translate: bool = False  # if its vocabulary differs from the target's, translate drafts through text
    progress: ProgressReport = silent  # reports the progress of loading the model
    hf: str | None = None
    weights: str = FASTEST

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[OpenedSource]:
        """Load the model, and check that it can draft for the verifier; see `Source.open`."""
        with ExitStack() as stack:
            if texts > MOST_SLOTS:
                raise BadOption(f"texts must be at most {MOST_SLOTS}, the slots of a draft model, got {texts}")
            branches = min(branches, MOST_SLOTS // texts)
            info = client.model()
            engine = replace(self.engine, weights=self.weights)
            backend = load_model(self.backend, engine, self._file(info), branches, texts, self.progress)
            times = _timed(backend)
            engines = stack.enter_context(_lent(backend, texts))
            yield self._drafting(backend, times, engines, stack, client, info)

    @property
    def _named(self) -> bool:
        """Whether a model is named, or an engine that reads other files than those that ship or are known."""
        return self.hf is not None or Path(self.path) != DEFAULT_DRAFT or self.backend != "llama_cpp"

    def _file(self, info: ModelInfo) -> Path:
        if self.hf is None:
            here = {} if self._named else known_drafters(info.name, info.vocabulary.ordinary)[1]
            known = next(iter(here.values()), None)
            if known is not None:
                _log.info("%s drafts for %s: it is in the cache, and known to pair", known.name, one_line(info.name))
            return known or Path(self.path)
        return named_file(self.hf, self.backend, self.engine, self.progress)

    def _drafting(
        self,
        backend: Backend,
        times: PassTimes | None,
        engines: list[Backend],
        stack: ExitStack,
        client: VerifierClient,
        info: ModelInfo,
    ) -> OpenedSource:
        """Check that the loaded model can draft for the verifier's model. `stack`: closes what is opened."""
        free = not share_cores(info, backend.threads)
        name, warm = backend.model_name, [WarmEngine(engine, times or UNTIMED, whole=free) for engine in engines]
        step_times = times
        drafters = [_direct(info.vocabulary.size, engine) for engine in warm]
        try:
            check_vocabulary(client, backend.vocabulary, name, info)
            vocabulary = stack.enter_context(texts_vocabulary(client, backend.vocabulary, info))
        except VocabularyMismatch as error:
            if not self.translate:
                raise VocabularyMismatch(f"{error}{self._instead(info, name)}") from None
            name, vocabulary = f"{name} (translated)", stack.enter_context(closing(RemoteVocabulary(client, info)))
            drafters, warm = [_translating(vocabulary, engine) for engine in warm], []
            step_times = None  # a step may take several passes
        anew = partial(self._drafting, backend, times, engines, stack)
        return OpenedSource(
            name, info, vocabulary, drafters, anew, threads=backend.threads, warm=warm, times=step_times
        )

    def _instead(self, info: ModelInfo, name: str) -> str:
        """Which models can draft for the verifier's model, as the model `name` cannot."""
        through_text = "let this one draft through text: --translate"
        if self._named or name != DEFAULT_DRAFT.stem:
            return f" Or {through_text}"
        choice, _ = known_drafters(info.name, info.vocabulary.ordinary)
        ships = f" Name it by --draft-model ({name} ships, and is taken where none is named)"
        known = [each.name for each in choice.entries]
        get = f"; `drafter models pull {known[0]}` fetches one, which is then taken by itself" if known else ""
        return f"{ships}, or {through_text}{get}"


def _timed(backend: Backend) -> PassTimes | None:
    """The times of a loaded draft model's passes; None if its engine fails, which each text reports by itself."""
    try:
        return pass_times(backend, time.perf_counter)
    except Exception as error:
        _log.warning("the draft model could not be timed: %s", first_line(error))
        return None


def _direct(size: int, engine: WarmEngine) -> MakeDrafter:
    """The drafters where the draft model has the target's vocabulary, of `size` ids. Texts of one salt share its KV
    cache."""
    return lambda spec, prompt_ids: FallbackDrafter(lambda: engine.drafter(spec, size, prompt_ids, spec.cache_salt))


def _translating(target: Vocabulary, engine: WarmEngine) -> MakeDrafter:
    """The drafters where the draft model has another vocabulary than `target`."""
    return lambda spec, _: FallbackDrafter(
        lambda: TranslatingDrafter(engine.emptied(), target, spec.drawn, draws=spec.strategy.draws)
    )


@contextmanager
def _lent(backend: Backend, texts: int) -> Iterator[list[Backend]]:
    """Yield an engine for each of `texts` texts: `backend` itself for one text, else views of equal parts of its slots.
    Close `backend` when the block is left."""
    with ExitStack() as stack:
        if texts == 1:
            yield [stack.enter_context(closing(backend))]
        else:
            shared = stack.enter_context(closing(SharedEngine(backend)))
            yield [stack.enter_context(closing(shared.view(backend.slots // texts))) for _ in range(texts)]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Prompt lookup without a model: if the last tokens occurred earlier in the text, what followed them is drafted."""

    def open(self, client: VerifierClient, branches: int, texts: int) -> AbstractContextManager[OpenedSource]:
        """Ask the verifier for its vocabulary; see `Source.open`."""
        return _opened(client, NGRAM_LOOKUP, texts, lambda _: lambda *_: NgramDrafter(branches), looks_up=True)


@dataclass(frozen=True, slots=True)
class Custom:
    """A custom drafter. `make(vocabulary, sampling)` is called for each text with the target's vocabulary and returns a
    new drafter."""

    make: Callable[[Vocabulary, Sampling], Drafter]
    name: str = "custom drafter"

    def open(self, client: VerifierClient, branches: int, texts: int) -> AbstractContextManager[OpenedSource]:
        """Ask the verifier for its vocabulary, which `make` gets; see `Source.open`."""

        def drafter(known: Vocabulary) -> MakeDrafter:
            return lambda spec, _: CheckedDrafter(self.make(known, spec.sampling), self.name, known.size)

        return _opened(client, self.name, texts, drafter)


@dataclass(frozen=True, slots=True)
class Undrafted:
    """The source of a pair without a drafter: nothing is drafted on this machine."""

    def open(self, client: VerifierClient, branches: int, texts: int) -> AbstractContextManager[OpenedSource]:
        return _opened(client, None, texts, lambda _: _refuse)


def _refuse(*_: Any) -> Drafter:
    raise BadOption("this pair has no drafter: make it with a draft source")


@contextmanager
def _opened(
    client: VerifierClient,
    name: str | None,
    texts: int,
    drafter: Callable[[Vocabulary], MakeDrafter],
    *,
    looks_up: bool = False,
) -> Iterator[OpenedSource]:
    """Open a source without a draft model: the target's vocabulary is fetched. `drafter`: returns a factory."""
    with ExitStack() as stack:

        def anew(client: VerifierClient, info: ModelInfo) -> OpenedSource:
            vocabulary = stack.enter_context(closing(RemoteVocabulary(client, info)))
            return OpenedSource(name, info, vocabulary, [drafter(vocabulary)] * texts, anew, looks_up)

        yield anew(client, client.model())


def named_file(name: str, backend: str, engine: LoadOptions, progress: ProgressReport = silent) -> Path:
    """The file or folder of the model `name`, fetched unless it is in the cache. Raises ModelLoadError."""
    with progress(f"{name} from the hub") as report:
        return file_of(
            name, backend, lambda done, total: report(done / max(total, 1)), engine, f"drafter models pull {name}"
        )


def load_model(
    backend: str,
    engine: LoadOptions,
    model: Path,
    branches: int = 1,
    texts: int = 1,
    progress: ProgressReport = silent,
    *,
    drafts: bool = True,
) -> Backend:
    """Load a model with a slot for each of `branches` branches of each of `texts` texts. Raises ModelLoadError.

    `progress` reports the loading. Each text has a full context; the branches of a text share it, and so does a spare
    slot, if the engine can use one.
    `drafts`: whether it is a draft model, for which the engine may choose another KV cache.
    """
    beyond = BRANCH_CELLS * texts * (branches - 1)
    chosen = replace(engine, model=model, slots=branches * texts, contexts=texts, shared_cells=beyond)
    if drafts:
        chosen = replace(chosen, spare_slots=texts, spare_from=SIZES.engine_context)
    try:
        with progress(model.name) as report:
            return (load_draft if drafts else load)(backend, chosen, report)
    except ModelLoadError as error:
        if texts == 1:
            raise
        reason = f"slots are for {texts} texts at a time (--concurrency), {branches} for each (--branches)"
        raise ModelLoadError(f"{error}; {reason}", error.setting) from None
