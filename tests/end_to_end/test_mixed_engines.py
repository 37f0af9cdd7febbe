"""The two ends on different engines: token ids mean the same to both, and the text is that of the verifier's engine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from backends.registry import load
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary, check_vocabulary
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.drafters.base import Drafter, NgramDrafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference
from verifier_server.settings import Settings

pytestmark = pytest.mark.engine("torch")

ENGINES = ("llama_cpp", "torch")
NEAR = {"llama_cpp": EPSILON, "torch": 1e-3}  # allowed flips in nats; torch computes in float32 throughout
TOKENS = 64
Opened = Callable[[str, Path], Backend]


@contextmanager
def _model(engine: str, path: Path) -> Iterator[Backend]:
    device = "cpu" if engine == "torch" else None
    options = LoadOptions(model=path, slots=3, context_length=CONTEXT, threads=1, device=device)
    with closing(load(engine, options)) as backend:
        yield backend


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Models by engine and path, each loaded once."""
    loaded: dict[tuple[str, Path], Backend] = {}
    with ExitStack() as stack:

        def open_model(engine: str, path: Path) -> Backend:
            if (engine, path) not in loaded:
                loaded[engine, path] = stack.enter_context(_model(engine, path))
            return loaded[engine, path]

        yield open_model


@pytest.fixture(scope="module", params=ENGINES)
def verifier(request: pytest.FixtureRequest) -> Iterator[tuple[str, Verifier]]:
    device = "cpu" if request.param == "torch" else None
    with running(Settings(backend=request.param, slots=2, context=CONTEXT, threads=1, device=device)) as started:
        yield request.param, started


@pytest.mark.parametrize("drafting", [*ENGINES, "ngram"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("mechanisms", [LOCKSTEP, Mechanisms(self_continue=False)], ids=["lockstep", "overlapped"])
def test_text_equals_plain_decoding_of_the_verifier_s_engine(
    verifier: tuple[str, Verifier], opened: Opened, drafting: str, temperature: float, mechanisms: Mechanisms
) -> None:
    judging, started = verifier
    reference = Reference(opened(judging, DEFAULT_TARGET))
    flips: list[float] = []
    accepted = drafted = 0
    with closing(VerifierClient(started.url)) as client:
        for number, text in enumerate(PROMPTS[::8]):
            sampling = Sampling(seed=number, temperature=temperature)
            info = client.model()
            vocabulary: Vocabulary = RemoteVocabulary(client, info)
            drafter: Drafter = NgramDrafter(3)
            if drafting != "ngram":
                backend = opened(drafting, DEFAULT_DRAFT)
                vocabulary, drafter = backend.vocabulary, ModelDrafter(backend, sampling)
                check_vocabulary(client, vocabulary, backend.model_name, info)
            prompt = vocabulary.encode(text)
            assert prompt == reference.encode(text), "both engines encode the prompt equally"
            run = generate(
                client,
                drafter,
                4,
                prompt,
                info=info,
                mechanisms=mechanisms,
                **options_of(sampling, TOKENS),
            )
            flips += reference.flips(prompt, run.tokens, sampling)
            accepted, drafted = accepted + run.stats.accepted, drafted + run.stats.drafted
    assert all(margin < NEAR[judging] for margin in flips), f"differs at more than near-ties: {flips}"
    if drafting != "ngram":
        assert accepted > 0.2 * drafted > 0
    elif not temperature and mechanisms is LOCKSTEP:
        assert accepted > 0, "code repeats itself"
