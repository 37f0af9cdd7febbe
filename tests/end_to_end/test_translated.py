"""A draft model of another vocabulary, translated: the text stays the target's, and most draft tokens are accepted."""

from pathlib import Path

import pytest

from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from models import DEFAULT_TWIN
from specpair.drafters.translation import TranslatingDrafter
from specpair.engines.backend import Backend
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import generate, options_of
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import EPSILON, Reference, model
from tests.stand_ins.renumbering import renumbered

pytestmark = pytest.mark.slow

TOKENS = 64
Twins = dict[str, Path]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """The target's twin with other ids for the same tokens, and with a third of the tokens."""
    folder = tmp_path_factory.mktemp("twins")
    renumbered(DEFAULT_TWIN, folder / "renumbered.gguf")
    renumbered(DEFAULT_TWIN, folder / "smaller.gguf", size=1400)
    return {path.stem: path for path in folder.iterdir()}


def acceptance(
    client: VerifierClient, reference: Reference, backend: Backend, temperature: float, mechanisms: Mechanisms
) -> tuple[float, list[float]]:
    """The acceptance rate, and the flips against plain decoding of the target."""
    info = client.model()
    target = RemoteVocabulary(client, info)
    flips: list[float] = []
    accepted = drafted = 0
    for number, text in enumerate(PROMPTS[::6]):
        sampling = Sampling(seed=number, temperature=temperature)
        prompt = reference.encode(text)
        backend.release(0)
        drafter = TranslatingDrafter(backend, target, sampling)
        options = options_of(sampling, TOKENS)
        run = generate(client, drafter, 4, prompt, info=info, mechanisms=mechanisms, **options)
        flips += reference.flips(prompt, run.tokens, sampling)
        accepted, drafted = accepted + run.stats.accepted, drafted + run.stats.drafted
    return accepted / drafted, flips


@pytest.mark.parametrize(
    ("name", "temperature", "least"),
    [("renumbered", 0.0, 0.85), ("renumbered", 0.8, 0.7), ("smaller", 0.0, 0.6), ("smaller", 0.8, 0.3)],
)
def test_translated_drafts_are_mostly_accepted(
    client: VerifierClient, reference: Reference, twins: Twins, name: str, temperature: float, least: float
) -> None:
    with model(twins[name]) as backend:
        rate, flips = acceptance(client, reference, backend, temperature, LOCKSTEP)
    assert all(margin < EPSILON for margin in flips)
    assert rate > least


def test_overlapped_translated_drafts_keep_the_target_s_text(
    client: VerifierClient, reference: Reference, twins: Twins
) -> None:
    with model(twins["smaller"]) as backend:
        _, flips = acceptance(client, reference, backend, 0.8, Mechanisms(self_continue=False))
    assert all(margin < EPSILON for margin in flips)
