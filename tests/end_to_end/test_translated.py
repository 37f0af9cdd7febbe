"""A draft model of another vocabulary, through text: the text stays the target's, and most drafts stand."""

from pathlib import Path

import pytest

from backends.base import Backend
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from drafters.translation import TranslatingDrafter
from models import DEFAULT_TWIN
from models.renumbering import renumbered
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.sampling.sampling import Sampling
from tests.drafter_client.cli.command_line import Command, runner
from tests.drafter_client.support import Verifier, generate, options_of
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import EPSILON, Reference, model

pytestmark = pytest.mark.slow

TOKENS = 64
Twins = dict[str, Path]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """The target's twin with other ids for the same tokens, and with a third of them."""
    folder = tmp_path_factory.mktemp("twins")
    renumbered(DEFAULT_TWIN, folder / "renumbered.gguf")
    renumbered(DEFAULT_TWIN, folder / "smaller.gguf", size=1400)
    return {path.stem: path for path in folder.iterdir()}


def accepted(
    client: VerifierClient, reference: Reference, backend: Backend, temperature: float, mechanisms: Mechanisms
) -> tuple[float, list[float]]:
    """Share of the drafts that stood, and where texts differ from the target's own."""
    info = client.model()
    target = RemoteVocabulary(client, info)
    flips: list[float] = []
    stood = drafted = 0
    for number, text in enumerate(PROMPTS[::6]):
        sampling = Sampling(seed=number, temperature=temperature)
        prompt = reference.encode(text)
        backend.release(0)
        drafter = TranslatingDrafter(backend, target, sampling)
        options = options_of(sampling, TOKENS)
        run = generate(client, drafter, 4, prompt, info=info, mechanisms=mechanisms, **options)
        flips += reference.flips(prompt, run.tokens, sampling)
        stood, drafted = stood + run.stats.accepted, drafted + run.stats.drafted
    return stood / drafted, flips


@pytest.mark.parametrize(
    ("name", "temperature", "least"),
    [("renumbered", 0.0, 0.85), ("renumbered", 0.8, 0.7), ("smaller", 0.0, 0.6), ("smaller", 0.8, 0.3)],
)
def test_the_text_is_the_targets_and_most_drafts_stand(
    client: VerifierClient, reference: Reference, twins: Twins, name: str, temperature: float, least: float
) -> None:
    with model(twins[name]) as backend:
        share, flips = accepted(client, reference, backend, temperature, LOCKSTEP)
    assert all(margin < EPSILON for margin in flips)
    assert share > least


def test_side_by_side_the_text_is_the_same(client: VerifierClient, reference: Reference, twins: Twins) -> None:
    with model(twins["smaller"]) as backend:
        _, flips = accepted(client, reference, backend, 0.8, Mechanisms(self_continue=False))
    assert all(margin < EPSILON for margin in flips)


@pytest.fixture
def drafter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return runner(capsys, monkeypatch)


def test_the_flag_is_named_where_it_is_needed(verifier: Verifier, drafter: Command, twins: Twins) -> None:
    flags = ["--verifier", verifier.url, "--prompt", "def main():", "--max-tokens", "20", "--threads", "1"]
    refused = drafter(*flags, "--draft-model", str(twins["smaller"]))
    assert refused.status == 1
    assert "smaller cannot draft for stdlib-target-q8_0" in refused.err
    assert refused.err.endswith("own family, or let it draft through text: --translate\n")
    translated = drafter(
        *flags, "--draft-model", str(twins["smaller"]), "--translate", "--baseline", "--seed", "1", "--stats"
    )
    assert translated.status == 0
    assert "smaller (translated) drafts for stdlib-target-q8_0" in translated.err
    assert "same text" in translated.err
    same = drafter(*flags, "--draft-model", str(DEFAULT_TWIN), "--translate")
    assert same.status == 0
    assert "(translated)" not in same.err, "where the ids mean the same there is nothing to translate"
    assert same.out == translated.out


def test_ids_mean_something_else_there(twins: Twins) -> None:
    """The measure: without translation hardly a draft would stand."""
    with model(twins["renumbered"]) as other, model(DEFAULT_TWIN) as own:
        text = "def main(argv=None):\n    return os.path.join(argv)"
        assert other.vocabulary.encode(text) != own.vocabulary.encode(text)
        assert other.vocabulary.decode(other.vocabulary.encode(text)) == text.encode()
