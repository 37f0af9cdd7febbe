"""What drafts for a verifier: a model of its vocabulary or of another, a lookup in the text, a program's own idea."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from backends.base import ROWS_AT_MOST, Backend, LoadOptions, ModelLoadError
from backends.registry import load
from backends.shipped import DEFAULT_DRAFT
from backends.vocabulary import Vocabulary
from drafter_client.display.progress import Telling, unsaid
from drafter_client.errors import BadOption, VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from drafter_client.http.responses import ModelInfo
from drafters.base import Drafter
from drafters.custom import CheckedDrafter
from drafters.draft_model import BRANCH_CELLS, model_drafter
from drafters.fallback import FallbackDrafter
from drafters.lookup import NAME, NgramDrafter
from drafters.shared_engine import SharedEngine
from drafters.translation import TranslatingDrafter
from speculation.acceptance.strategies import Strategy, effective_sampling
from speculation.sampling.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Drafting:
    """Drafters to be, what they draft for, and the vocabulary in which the text is read and shown."""

    name: str | None  # None: nothing drafts here
    info: ModelInfo
    vocabulary: Vocabulary
    drafters: list[
        Callable[[Sampling, Strategy], Drafter]
    ]  # one for each text at a time: a new drafter for every next text
    looks_up: bool = False  # it is a lookup already


class Source(Protocol):
    """What a `Pair` can draft with."""

    def open(self, client: VerifierClient, branches: int, texts: int) -> AbstractContextManager[Drafting]:
        """Ready to draft for the verifier that `client` asks: so many texts, along so many continuations, at once.

        Raises ModelLoadError, VocabularyMismatch, and what the client raises.
        """


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A small model on this machine. `engine`: settings of its engine; its model and rows are chosen here."""

    path: Path = DEFAULT_DRAFT
    backend: str = "llama_cpp"
    engine: LoadOptions = field(default_factory=LoadOptions)
    translate: bool = False  # where its vocabulary is another one, draft through text
    progress: Telling = unsaid  # who is told how far loading is

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[Drafting]:
        with ExitStack() as stack:
            if texts > ROWS_AT_MOST:
                raise BadOption(f"texts is {texts}: a draft model holds {ROWS_AT_MOST} at a time, or fewer")
            branches = min(branches, ROWS_AT_MOST // texts)
            backend = load_model(self.backend, self.engine, self.path, branches, texts, self.progress)
            engines = stack.enter_context(_lent(backend, texts))
            info = client.model()
            try:
                client.check_vocabulary(backend.vocabulary, backend.model_name, info)
            except VocabularyMismatch as error:
                if not self.translate:
                    raise VocabularyMismatch(f"{error}, or let it draft through text: --translate") from None
                target = RemoteVocabulary(client, info)
                client.ping()
                through_text = [partial(_translating, engine, target) for engine in engines]
                yield Drafting(f"{backend.model_name} (translated)", info, target, [*through_text])
                return
            size = info.vocabulary.size
            drafters = [partial(_drafting, engine, size) for engine in engines]
            yield Drafting(backend.model_name, info, backend.vocabulary, [*drafters])


def _drafting(engine: Backend, vocabulary_size: int, sampling: Sampling, strategy: Strategy) -> Drafter:
    return FallbackDrafter(lambda: model_drafter(_emptied(engine), sampling, strategy, vocabulary_size))


def _translating(engine: Backend, target: Vocabulary, sampling: Sampling, strategy: Strategy) -> Drafter:
    drawn = effective_sampling(strategy, sampling)
    return FallbackDrafter(lambda: TranslatingDrafter(_emptied(engine), target, drawn, draws=strategy.draws))


def _emptied(engine: Backend) -> Backend:
    """For the next text: what the last one left would take room beside it."""
    for row in range(engine.rows):
        if engine.length(row):  # each waits for the pass under way
            engine.release(row)
    return engine


@contextmanager
def _lent(backend: Backend, texts: int) -> Iterator[list[Backend]]:
    """The engine itself for one text; for several, an equal part of its rows for each. Closes it in the end."""
    with ExitStack() as stack:
        if texts == 1:
            yield [stack.enter_context(closing(backend))]
        else:
            shared = stack.enter_context(closing(SharedEngine(backend)))
            yield [stack.enter_context(closing(shared.view(backend.rows // texts))) for _ in range(texts)]


@dataclass(frozen=True, slots=True)
class Lookup:
    """No model: what the last tokens were followed by when they stood in the text before."""

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[Drafting]:
        info, vocabulary = _told_by(client)
        yield Drafting(NAME, info, vocabulary, [lambda *_: NgramDrafter(branches)] * texts, looks_up=True)


@dataclass(frozen=True, slots=True)
class Custom:
    """A drafter of a program's own. `make`: a new one for each text, given the target's vocabulary and the sampling."""

    make: Callable[[Vocabulary, Sampling], Drafter]
    name: str = "custom drafter"

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[Drafting]:
        info, vocabulary = _told_by(client)
        drafter = partial(self._drafter, vocabulary)
        yield Drafting(self.name, info, vocabulary, [drafter] * texts)

    def _drafter(self, vocabulary: Vocabulary, sampling: Sampling, _strategy: Strategy) -> Drafter:
        return CheckedDrafter(self.make(vocabulary, sampling), self.name, vocabulary.size)


@dataclass(frozen=True, slots=True)
class Undrafted:
    """Nothing drafts here."""

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[Drafting]:
        info, vocabulary = _told_by(client)
        yield Drafting(None, info, vocabulary, [_refuse] * texts)


def _refuse(*_: object) -> Drafter:
    raise BadOption("there is nothing here that drafts")


def _told_by(client: VerifierClient) -> tuple[ModelInfo, Vocabulary]:
    """What there is without a model here: all that is known of the target, its verifier says."""
    info = client.model()
    vocabulary = RemoteVocabulary(client, info)
    client.ping()
    return info, vocabulary


def load_model(
    backend: str, engine: LoadOptions, model: Path, branches: int = 1, texts: int = 1, progress: Telling = unsaid
) -> Backend:
    """A model with a row for each of so many branches of so many texts. Raises ModelLoadError.

    Each text has a context of its own, as if it were alone; branches of a text share it.
    """
    beyond = BRANCH_CELLS * texts * (branches - 1)
    chosen = replace(engine, model=model, rows=branches * texts, contexts=texts, shared_cells=beyond)
    try:
        with progress(model.name) as report:
            return load(backend, chosen, report)
    except ModelLoadError as error:
        if texts == 1:
            raise
        told = f"rows are for {texts} texts at a time (--concurrency), {branches} for each (--branches)"
        raise ModelLoadError(f"{error}; {told}") from None
