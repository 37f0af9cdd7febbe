"""The files of models that are named on a hub, with the head that has a file of its own."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from models.heads import make_head_file
from specpair.engines.errors import ModelLoadError
from tests.stand_ins.hub import HubStandIn, serving
from verifier_server.model_files import with_files
from verifier_server.settings import SettingsError, from_flags


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    """A stand-in with a target, an EAGLE-3 head for it, and what is called an MTP head and is none."""
    make_head_file("llama", tmp_path / "target.gguf")
    make_head_file("eagle3", tmp_path / "eagle3.gguf")
    target, eagle = ((tmp_path / name).read_bytes() for name in ("target.gguf", "eagle3.gguf"))
    files = {"Toy-Q8_0.gguf": target, "eagle3-Toy-Q8_0.gguf": eagle, "mtp-Toy-Q8_0.gguf": target}
    with serving({"u/toy": files}) as stand_in:
        monkeypatch.setattr(constants, "ENDPOINT", stand_in.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield stand_in


def test_a_head_is_fetched_by_its_kind(hub: HubStandIn) -> None:
    settings, _ = from_flags(["-hf", "u/toy", "--draft-head=eagle3"], {})
    found = with_files(settings)
    assert found.draft_head is not None
    assert found.model_path.name == "Toy-Q8_0.gguf" and found.draft_head.name == "eagle3-Toy-Q8_0.gguf"
    assert found.load_options().head_file == found.draft_head
    assert "mtp-Toy-Q8_0.gguf" not in hub.sent


def test_a_head_that_nobody_asked_for_and_that_does_not_fit_is_left_out(
    hub: HubStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    settings, _ = from_flags(["-hf", "u/toy"], {})
    with caplog.at_level(logging.WARNING, "specpair.verifier"):
        found = with_files(settings)
    assert found.draft_head is None and found.model_path.name == "Toy-Q8_0.gguf"
    assert "the target has no head for drafts" in caplog.text


@pytest.mark.parametrize("draft", ["model", "off"])
def test_no_head_is_fetched_that_would_not_be_used(hub: HubStandIn, draft: str) -> None:
    settings, _ = from_flags(["-hf", "u/toy", f"--draft={draft}"], {})
    assert with_files(settings).draft_head is None and list(hub.sent) == ["Toy-Q8_0.gguf"]


def test_a_kind_that_the_repository_lacks_is_named(hub: HubStandIn) -> None:
    settings, _ = from_flags(["-hf", "u/toy", "--draft-head=dflash"], {})
    with pytest.raises(ModelLoadError, match="u/toy has no file of the kind dflash: leave this out, or name a file"):
        with_files(settings)


def test_a_kind_needs_a_repository() -> None:
    with pytest.raises(SettingsError, match=r"^--draft-head: no such file: eagle3"):
        from_flags(["--draft-head=eagle3"], {})
