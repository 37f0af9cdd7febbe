"""Recurrent and hybrid targets behind a verifier: with drafts, the text is that of the target alone."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest

from backends.registry import load
from drafter_client.http.client import VerifierClient
from specpair.drafters.base import NgramDrafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.reference import CONTEXT, Reference
from tests.stand_ins.tiny_architectures import write_tiny_architecture
from tests.stand_ins.tiny_folders import write_tiny_folder
from verifier_server.settings import Settings

TOKENS = 60
NEAR = 1e-3  # allowed flips in nats
PROMPTS = ("def read(path):\n" * 3, "a b a b a b a")


@dataclass
class Loaded:
    """LFM2, short convolutions and attention, loaded three times."""

    alone: Reference
    draft_model: Backend
    verifier: Verifier


@pytest.fixture(scope="module", params=["llama_cpp", pytest.param("torch", marks=pytest.mark.engine("torch"))])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    path = tmp_path_factory.mktemp("models") / "lfm2"
    (write_tiny_folder if request.param == "torch" else write_tiny_architecture)("lfm2", path)
    device = "cpu" if request.param == "torch" else None
    options = LoadOptions(path, 2, CONTEXT, threads=1, device=device)
    with ExitStack() as stack:
        target, alone, draft_model = (stack.enter_context(closing(load(request.param, options))) for _ in range(3))
        verifier = stack.enter_context(running(Settings(slots=2, context=CONTEXT), target))
        yield Loaded(Reference(alone), draft_model, verifier)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("mechanisms", [LOCKSTEP, Mechanisms()], ids=["lockstep", "overlapped"])
def test_text_equals_that_of_the_target_alone(loaded: Loaded, temperature: float, mechanisms: Mechanisms) -> None:
    drafted, accepted = Counter[str](), Counter[str]()
    with closing(VerifierClient(loaded.verifier.url)) as client:
        info = client.model()
        for number, text in enumerate(PROMPTS):
            prompt, sampling = loaded.alone.encode(text), Sampling(seed=number, temperature=temperature)
            drafters = {"looked up": NgramDrafter(3), "modelled": ModelDrafter(loaded.draft_model, sampling)}
            for name, drafter in drafters.items():
                own = options_of(sampling, TOKENS)
                run = generate(client, drafter, 5, prompt, info=info, mechanisms=mechanisms, **own)
                assert all(margin < NEAR for margin in loaded.alone.flips(prompt, run.tokens, sampling))
                drafted[name] += run.stats.drafted
                accepted[name] += run.stats.accepted
    if mechanisms is LOCKSTEP:  # else so fast a target may be done before any draft
        assert accepted["modelled"] > 0
        assert drafted["looked up"] > accepted["looked up"], "some are rejected"
