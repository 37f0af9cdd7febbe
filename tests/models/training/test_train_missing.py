"""Training without its extra installed: the error names the missing package and the install command."""

import importlib
import sys

import pytest


@pytest.mark.parametrize("package", ["torch", "tokenizers"])
def test_missing_package_is_named_with_the_install_command(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "fit", "llama", "vocabulary"):
        monkeypatch.delitem(sys.modules, f"models.training.{name}", raising=False)
    if package == "tokenizers":
        pytest.importorskip("torch", reason="torch is looked for first")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ModuleNotFoundError, match=rf"^models.training.train needs {package}: pip install -e '\.\[torch\]'$"
    ):
        importlib.import_module("models.training.train")
