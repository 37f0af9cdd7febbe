"""The file of a model by its name, for an engine: what goes wrong is said as of a model that cannot be loaded."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from backends.llama_cpp import load
from backends.named_model import file_of
from models import DEFAULT_DRAFT
from models.hub.download import fetch_model
from models.hub.names import parse_name
from models.hub.repository import Hub
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import FreeMemory, LoadOptions
from specpair.extras import installing
from tests.stand_ins.hub import HubStandIn, serving


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    """A stand-in that this process takes for the hub, with an empty cache."""
    with serving({"u/toy": {"Toy-Q8_0.gguf": b"GGUF"}}) as stand_in:
        monkeypatch.setattr(constants, "ENDPOINT", stand_in.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        yield stand_in


def test_a_named_model_is_a_file(hub: HubStandIn) -> None:
    told: list[tuple[int, int]] = []
    assert (
        file_of("u/toy:Q8_0", "scripted", lambda *each: told.append(each), LoadOptions(), "pull").read_bytes()
        == b"GGUF"
    )
    assert told[-1] == (4, 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [("u/toy:Q4_0", "u/toy has no model Q4_0, but these: Q8_0"), ("u/other", "has no model u/other")],
)
def test_a_name_without_a_model_is_told(hub: HubStandIn, name: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        file_of(name, "llama_cpp", lambda *_: None, LoadOptions(), "pull")


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelLoadError) as caught:
        file_of("u/toy", "llama_cpp", lambda *_: None, LoadOptions(), "pull")
    assert str(caught.value) == f"huggingface_hub is not installed: {installing('hub')}"


def test_a_model_that_does_not_fit_the_memory_is_fetched_only_by_its_own_command(
    hub: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DEFAULT_DRAFT.read_bytes()
    hub.repositories["u/toy"] |= {"Toy-Q4_K_M.gguf": model}
    monkeypatch.setattr(load, "room", lambda _options: FreeMemory(len(model) // 2))
    with pytest.raises(ModelLoadError) as caught:
        file_of("u/toy:Q4_K_M", "llama_cpp", lambda *_: None, LoadOptions(), "drafter models pull u/toy:Q4_K_M")
    said = str(caught.value)
    assert "are more than the" in said and "fetch it all the same with `drafter models pull u/toy:Q4_K_M`" in said
    assert hub.sent["Toy-Q4_K_M.gguf"] < len(model)
    fetched = fetch_model(parse_name("u/toy:Q4_K_M"), Hub())
    assert file_of("u/toy:Q4_K_M", "llama_cpp", lambda *_: None, LoadOptions(), "") == fetched
