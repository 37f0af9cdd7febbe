"""Models by name and by path: the files that are found, and what is said where there is none."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from backends.hugging_face import check_folder, model_name
from backends.llama_cpp import load
from backends.named_model import file_of
from models import DEFAULT_DRAFT
from models.hub.download import fetch_model
from models.hub.names import parse_name
from models.hub.repository import Hub
from specpair.engines.errors import ModelLoadError, NoGenerator
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


def test_model_name_is_that_of_the_file_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the name in config.json, where a fine-tuned model may still have the name of its base model."""
    folder = tmp_path / "llama-1b-tuned"
    folder.mkdir()
    (folder / "config.json").write_text('{"_name_or_path": "meta/llama-1b"}')
    (tmp_path / "llama-1b.q8_0.gguf").write_bytes(b"GGUF")
    (tmp_path / "latest").symlink_to(folder)
    assert model_name(folder) == model_name(tmp_path / "latest") == "llama-1b-tuned"
    assert model_name(tmp_path / "llama-1b.q8_0.gguf") == "llama-1b.q8_0"
    monkeypatch.chdir(folder)
    assert model_name(Path()) == "llama-1b-tuned"
    assert model_name(tmp_path / "models--org--llama-1b" / "snapshots" / "0123abcd") == "llama-1b"


def test_check_folder_refuses_other_paths_with_the_reason(tmp_path: Path) -> None:
    def refusal(path: Path | None, **named: object) -> str:
        with pytest.raises(ModelLoadError) as caught:
            check_folder(path, "some", **named)  # type: ignore[arg-type]
        return str(caught.value)

    reads = "the some backend reads a folder in Hugging Face layout"
    assert refusal(None) == "the some backend needs a model: a folder in Hugging Face layout"
    assert refusal(None, reads="tea leaves") == "the some backend needs a model: tea leaves"
    assert refusal(tmp_path / "none") == f"no such model: {tmp_path / 'none'}: {reads}"
    assert refusal(tmp_path) == f"{tmp_path} is no model folder: it has no config.json"
    config = tmp_path / "config.json"
    config.write_text("{}")
    assert refusal(config) == f"{config} is a file: {reads}"
    advice = "convert them with save_pretrained of transformers"
    assert refusal(tmp_path) == f"{tmp_path} has no weights in *.safetensors: {advice}"
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    assert check_folder(tmp_path, "some") == tmp_path
    assert refusal(tmp_path, weights=("a.bin", "b.bin")) == f"{tmp_path} has no weights in a.bin, b.bin: {advice}"


OTHERS = ["BertModel", "MistralModel", "Gemma3TextModel", "ModernBertForMaskedLM", "Qwen3ForSequenceClassification"]


def _folder(folder: Path, **config: object) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").touch()
    return folder


@pytest.mark.parametrize("name", OTHERS)
def test_a_class_without_a_causal_head_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoGenerator, match=f"does not generate text token by token .its class is {name}."):
        check_folder(_folder(tmp_path, architectures=[name]), "some")


def test_an_encoder_with_a_decoder_and_an_embedding_model_with_a_causal_head_are_refused(tmp_path: Path) -> None:
    config = {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
    with pytest.raises(NoGenerator, match="an encoder with a decoder"):
        check_folder(_folder(tmp_path, **config), "some")
    (_folder(tmp_path, architectures=["Qwen3ForCausalLM"]) / "modules.json").write_text("[]")
    with pytest.raises(NoGenerator, match=r"it has modules.json of sentence-transformers"):
        check_folder(tmp_path, "some")
