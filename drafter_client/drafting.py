"""What drafts, as the flags say: a model of the target's vocabulary or of another, or a lookup that needs no model."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.contract import Backend, LoadOptions
from backends.registry import load
from backends.vocabulary import Vocabulary
from drafter_client.arguments import NGRAM
from drafter_client.client import VerifierClient
from drafter_client.errors import VocabularyMismatch
from drafter_client.progress import loading
from drafter_client.remote_vocabulary import RemoteVocabulary
from drafter_client.replies import ModelInfo
from drafter_client.translating import TranslatingDrafter
from drafting.contract import Drafter
from drafting.model import BRANCH_CELLS, ModelDrafter
from drafting.ngram import NAME, NgramDrafter
from speculation.acceptance import Strategy, effective_sampling
from speculation.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Drafting:
    """A drafter to be, what it drafts for, and the vocabulary in which the text is read and shown."""

    name: str
    info: ModelInfo
    vocabulary: Vocabulary
    drafter: Callable[[Sampling, Strategy], Drafter]


@contextmanager
def drafting(options: argparse.Namespace, client: VerifierClient) -> Iterator[Drafting]:
    """Load what drafts, and make sure that it can draft for this verifier. Raises VocabularyMismatch."""
    branches = 1 if options.lockstep else options.branches
    if options.backend == NGRAM:
        info = client.model()
        vocabulary = RemoteVocabulary(client, info)
        client.ping()
        yield Drafting(NAME, info, vocabulary, lambda *_: NgramDrafter(branches))
        return
    with closing(load_model(options, options.draft_model, branches)) as backend:
        info = client.model()
        try:
            client.check_vocabulary(backend.vocabulary, backend.model_name, info)
        except VocabularyMismatch as error:
            if not options.translate:
                raise VocabularyMismatch(f"{error}, or let it draft through text: --translate") from None
            target = RemoteVocabulary(client, info)
            client.ping()
            name = f"{backend.model_name} (translated)"
            yield Drafting(
                name,
                info,
                target,
                lambda sampling, strategy: TranslatingDrafter(
                    backend, target, effective_sampling(strategy, sampling), draws=_draws(strategy)
                ),
            )
            return
        size = info.vocabulary.size
        yield Drafting(
            backend.model_name,
            info,
            backend.vocabulary,
            lambda sampling, strategy: ModelDrafter(
                backend, effective_sampling(strategy, sampling), size, draws=_draws(strategy)
            ),
        )


def _draws(strategy: Strategy) -> bool:
    return strategy is Strategy.PROBABILISTIC


def load_model(options: argparse.Namespace, model: Path, rows: int = 1) -> Backend:
    """The engine that the flags choose, with a model. Raises ModelLoadError."""
    chosen = LoadOptions(
        model=model,
        rows=rows,
        shared_cells=BRANCH_CELLS * (rows - 1),
        context_length=options.context,
        threads=options.threads,
        gpu_layers=options.gpu_layers,
        device=options.device,
        dtype=options.dtype,
        compile=options.compile,
        tensor_parallel=options.tensor_parallel,
    )
    with loading(model.name) as report:
        return load(options.backend, chosen, report)
