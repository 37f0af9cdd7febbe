"""What is installed of the Neuron SDK, told apart: nothing, the public index's placeholders, something broken."""

import re
from pathlib import Path

import pytest

from backends.base import ModelLoadError
from backends.neuron.install import LEGACY_REQUIREMENTS, REQUIREMENTS, import_neuron, refuse_placeholders
from tests.paths import ROOT

MARK = "WRONG PACKAGE. Please install the package from Neuron Repository - pip.repos.neuron.amazonaws.com"
INSTALL = "run `pip install -r requirements-neuron-legacy.txt`, which names AWS's own package index"
# Where the public index's placeholders stand.
PLACEHOLDERS = {
    "transformers-neuronx": (0, 1),
    "torch-neuronx": (1, 0),
    "neuronx-cc": (1, 0),
    "libneuronxla": (1, 0),
    "nki": (0, 0, 1),
}


def install(site: Path, name: str, version: str, description: str, package: str, code: str) -> None:
    """A distribution as pip leaves it behind."""
    information = site / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    headers = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: Proprietary\n"
    (information / "METADATA").write_text(f"{headers}\n{description}\n", encoding="utf-8")
    (site / package).mkdir()
    (site / package / "__init__.py").write_text(code, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python looks for packages in first."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def refusal(module: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        import_neuron(module, LEGACY_REQUIREMENTS)
    return str(caught.value)


def test_nothing_is_installed() -> None:
    assert refusal("neuronx_of_no_index") == f"neuronx_of_no_index is not installed: {INSTALL}"


def test_a_placeholder_is_told_from_the_library(site: Path) -> None:
    install(site, "transformers-neuronx", "0.1", MARK, "transformers_neuronx", f"raise ImportError({MARK!r})")
    assert refusal("transformers_neuronx") == (
        f"transformers-neuronx 0.1: an empty placeholder from the public package index, not the Neuron SDK: {INSTALL}"
    )


def test_the_compiler_s_placeholder_is_seen_though_it_cannot_be_imported(site: Path) -> None:
    """Its folder has a hyphen in its name; and where one package came from the wrong index, others did, too."""
    install(site, "neuronx-cc", "1.0.post1", MARK, "neuronx-cc", f"raise ImportError({MARK!r})")
    install(site, "torch-neuronx", "1.0", MARK, "torch_neuronx", f"raise ImportError({MARK!r})")
    with pytest.raises(ModelLoadError) as caught:
        refuse_placeholders(REQUIREMENTS)
    assert str(caught.value) == (
        "torch-neuronx 1.0, neuronx-cc 1.0.post1: an empty placeholder from the public package index, not the Neuron "
        "SDK: run `pip install -r requirements-neuron.txt`, which names AWS's own package index"
    )


def test_a_placeholder_without_metadata_is_known_by_what_it_says(site: Path) -> None:
    (site / "transformers_neuronx.py").write_text(f"raise ImportError({MARK!r})", encoding="utf-8")
    assert refusal("transformers_neuronx").startswith("transformers_neuronx: an empty placeholder from the public")


def test_a_library_that_needs_another_says_which(site: Path) -> None:
    (site / "transformers_neuronx.py").write_text("import torch_neuronx", encoding="utf-8")
    assert refusal("transformers_neuronx") == f"transformers_neuronx needs torch_neuronx, which is missing: {INSTALL}"


def test_a_library_that_is_broken_says_how(site: Path) -> None:
    (site / "transformers_neuronx.py").write_text("raise ImportError('libnrt.so.1: cannot open')", encoding="utf-8")
    assert refusal("transformers_neuronx") == (
        "transformers_neuronx is installed but cannot be imported: libnrt.so.1: cannot open"
    )


def test_the_library_itself_passes(site: Path) -> None:
    install(site, "nki", "0.7.0", "Neuron Kernel Interface", "nki_test_double", "answer = 42")
    assert import_neuron("nki_test_double", REQUIREMENTS).answer == 42


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [line.partition(" #")[0].strip() for line in text.splitlines() if line and not line.startswith("#")]


def package(line: str) -> str:
    return re.split(r"[<>=]", line)[0]


@pytest.mark.parametrize("name", [REQUIREMENTS, LEGACY_REQUIREMENTS])
def test_no_placeholder_satisfies_the_requirements(name: str) -> None:
    """So pip fails where AWS's index is out of reach, in place of installing what cannot be imported."""
    asked = lines(name)
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in asked
    versions = [(package(line), re.search(r"[>=]=([\d.]+)", line)) for line in asked if package(line) in PLACEHOLDERS]
    assert len(versions) == 3
    for which, version in versions:
        assert version is not None
        numbers = tuple(int(part) for part in version[1].rstrip(".").split("."))
        assert numbers[: len(PLACEHOLDERS[which])] > PLACEHOLDERS[which], which


@pytest.mark.parametrize(
    ("name", "repeated", "but_for"),
    [
        (LEGACY_REQUIREMENTS, "requirements.txt", {"numpy", "llama-cpp-python"}),
        (REQUIREMENTS, "requirements-torch.txt", {"torch"}),
    ],
)
def test_lists_that_cannot_include_another_repeat_it(name: str, repeated: str, but_for: set[str]) -> None:
    assert not [line for line in lines(repeated) if package(line) not in but_for and line not in lines(name)]


def test_nothing_of_the_sdk_is_needed_without_it() -> None:
    needed = {package(line) for name in ("requirements.txt", "requirements-dev.txt") for line in lines(name)}
    assert not needed & {*PLACEHOLDERS, "torch", "transformers"}
