"""Folders of models: what they are called, and what is said of those that are none."""

from pathlib import Path

import pytest

from backends.base import ModelLoadError
from backends.hugging_face.folder import check_folder, model_name


def test_a_model_is_called_as_its_file_or_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not as config.json says, where a model that was tuned still has the name of the one that it was made from."""
    folder = tmp_path / "llama-1b-tuned"
    folder.mkdir()
    (folder / "config.json").write_text('{"_name_or_path": "meta/llama-1b"}')
    (tmp_path / "llama-1b.q8_0.gguf").write_bytes(b"GGUF")
    (tmp_path / "latest").symlink_to(folder)
    assert model_name(folder) == model_name(tmp_path / "latest") == "llama-1b-tuned"
    assert model_name(tmp_path / "llama-1b.q8_0.gguf") == "llama-1b.q8_0"
    monkeypatch.chdir(folder)
    assert model_name(Path()) == "llama-1b-tuned"


def test_what_is_no_model_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
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
