"""Both ends start with models that are named on a hub, from an empty cache and from one without a hub."""

import json
import logging
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from drafter_client import Options, Pair
from drafter_client.draft_sources import DraftModel
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from models.hub.download import find_model
from models.hub.names import ModelName
from models.hub.repository import Hub
from tests.drafter_client.cli.command_line import Command, runner
from tests.drafter_client.support import running
from tests.stand_ins.hub import HubStandIn, serving
from tests.verifier_server.processes import MODULE, hasty, ready
from tests.verifier_server.processes import serving as started
from verifier_server.loading import ModelLoader
from verifier_server.settings import Settings

PAIR = {"u/pair": {"Std-Q8_0.gguf": DEFAULT_TARGET.read_bytes(), "Small-F16.gguf": DEFAULT_DRAFT.read_bytes()}}


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    """A stand-in that this process takes for the hub, with an empty cache."""
    with serving(PAIR) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield hub


@pytest.fixture
def drafter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return runner(capsys, monkeypatch)


def _variables(hub: HubStandIn, folder: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder), "HF_TOKEN": "", "VERIFIER_CONTEXT": "256"}


def test_a_pair_is_fetched_by_name_and_later_needs_no_hub(stand_in: HubStandIn, tmp_path: Path) -> None:
    variables = _variables(stand_in, tmp_path)
    by_name = [*MODULE, "-hf", "u/pair", "--draft-hf", "u/pair:F16", "--draft-slots=1"]
    for _ in range(2):
        with ready(by_name, **variables) as (_, http):
            model = http.get("/model").json()
            assert (model["model"], model["draft_model"]) == ("Std-Q8_0", "Small-F16")
            with Pair(str(http.base_url), DraftModel(hf="u/pair:f16")) as pair:
                assert pair.draft_model == "Small-F16"
                assert len(pair.generate("def main():", Options(max_tokens=8)).read().stats.token_ids) == 8
        assert stand_in.sent == {path: len(content) for path, content in PAIR["u/pair"].items()}
        variables["HF_HUB_OFFLINE"] = "1"


def test_a_verifier_that_is_stopped_while_it_fetches_goes_on_at_the_next_start(
    stand_in: HubStandIn, tmp_path: Path
) -> None:
    stand_in.holds = 1_000_000
    variables = _variables(stand_in, tmp_path)
    with started([*hasty(MODULE), "-hf", "u/pair", "--port", "0"], **variables) as (process, http):
        while http.get("/health").json()["progress"] < 0.11:
            pass  # the hub sends an eighth of the model, and then nothing
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
        assert process.stderr is not None
        log = process.stderr.read()
        assert "fetching u/pair: " in log and "/large/" not in log  # addresses of files may be signed
    stand_in.holds = None
    stand_in.go_on.set()
    stand_in.sent.clear()
    with ready([*MODULE, "-hf", "u/pair"], **variables):
        whole = len(PAIR["u/pair"]["Std-Q8_0.gguf"])
        assert stand_in.sent == {"Std-Q8_0.gguf": whole - 1_000_000}


def test_a_loader_that_is_to_stop_ends_the_fetching(stand_in: HubStandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loader = ModelLoader(Settings(hf="u/pair"), time.monotonic, lambda: None)
    loader.stopping = True
    loader.start()
    assert loader.wait(20) and loader.models is None and loader.failure is None
    assert "stopped while fetching the model: the next start continues" in caplog.messages
    assert find_model(ModelName("u/pair"), Hub()) is None and stand_in.counted("/large/") == 1


def test_a_drafter_without_a_model_takes_one_that_is_known_and_in_the_cache(
    stand_in: HubStandIn, drafter: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = tmp_path / "catalogue.toml"
    catalogue.write_text(
        '[[drafter]]\nname = "u/pair:F16"\nvocabulary = ""\ntargets = ["scripted*"]\nbytes = 1\nlicence = "MIT"\n'
    )
    monkeypatch.setenv("SPECPAIR_CATALOGUE", str(catalogue))
    with running(Settings(model=DEFAULT_TARGET, alias="scripted", context=256)) as verifier:
        flags = [
            "--verifier",
            verifier.url,
            "--prompt",
            "def main():",
            "--max-tokens",
            "8",
            "--json",
            "--mode",
            "remote",
        ]
        assert json.loads(drafter(*flags).out)["draft_model"] == DEFAULT_DRAFT.stem  # nothing is fetched unasked
        assert stand_in.asked == []
        assert drafter("models", "pull", "u/pair:F16").status == 0
        assert json.loads(drafter(*flags).out)["draft_model"] == "Small-F16"
        assert drafter("models", "remove", "u/pair").status == 0
    with running(Settings(backend="scripted", model=Path("1"), alias="scripted")) as verifier:
        ran = drafter("--verifier", verifier.url, "--prompt", "x", "--mode", "remote")
        assert ran.status == 1 and "`drafter models pull u/pair:F16` fetches one, which is then taken" in ran.err
