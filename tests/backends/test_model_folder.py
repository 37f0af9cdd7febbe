"""Model folders in Hugging Face layout: their names, and the errors for other paths."""

import json
from pathlib import Path

import pytest

from backends.hugging_face import check_folder, model_name
from specpair.engines.errors import ModelLoadError, NoGenerator


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
