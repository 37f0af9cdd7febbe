"""The Neuron SDK: which cores a process claims, and imports where it is missing, a placeholder, broken, or in order."""

import re
from pathlib import Path

import pytest

from backends.neuron import (
    LEGACY_REQUIREMENTS,
    NUMBER,
    REQUIREMENTS,
    VISIBLE,
    claim,
    import_neuron,
    read_cores,
    refuse_placeholders,
)
from specpair.engines.errors import ModelLoadError
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("0,2", [0, 2]),
        ("0-1,4-5", [0, 1, 4, 5]),
        ("7, 3", [7, 3]),
        ("12-12", [12]),
    ],
)
def test_list_of_cores_is_read(text: str, cores: list[int]) -> None:
    assert read_cores(text) == cores


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,,2", "0-1-2", "1.5", "0x1", "0-99999999999"])
def test_bad_list_of_cores_is_refused_by_name(text: str) -> None:
    with pytest.raises(ModelLoadError, match=f"^{VISIBLE} is '.*': expected numbers and ranges of cores, as 0-3"):
        read_cores(text)


@pytest.mark.parametrize(
    ("before", "count", "claimed", "after"),
    [
        ({}, 1, [0], {VISIBLE: "0"}),
        ({}, 4, [0, 1, 2, 3], {VISIBLE: "0-3"}),
        ({VISIBLE: ""}, 1, [0], {VISIBLE: "0"}),
        ({VISIBLE: "5"}, 1, [5], {VISIBLE: "5"}),
        ({VISIBLE: "4-7"}, 2, [4, 5], {VISIBLE: "4-5"}),
        ({VISIBLE: "4-7", NUMBER: "4"}, 1, [4], {VISIBLE: "4", NUMBER: "4"}),
        ({NUMBER: "2"}, 2, None, {NUMBER: "2"}),
        ({NUMBER: "8"}, 2, None, {NUMBER: "8"}),
        ({NUMBER: "0"}, 2, [0, 1], {NUMBER: "0", VISIBLE: "0-1"}),
    ],
)
def test_process_claims_no_more_than_it_uses(
    before: dict[str, str], count: int, claimed: list[int] | None, after: dict[str, str]
) -> None:
    environment = dict(before)
    assert claim(count, environment) == claimed
    assert environment == after
    assert claim(count, environment) == claimed, "a second model of the same size finds its cores"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({VISIBLE: "2-3"}, f"^{VISIBLE} is '2-3': the model takes 4 cores, name as many, or unset it"),
        ({NUMBER: "2"}, f"^{NUMBER} is '2': the model takes 4 cores, set 4, or unset it$"),
        ({NUMBER: "many"}, f"^{NUMBER} is 'many': the model takes 4 cores, set 4, or unset it$"),
    ],
)
def test_fewer_cores_than_the_model_takes_are_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ModelLoadError, match=words):
        claim(4, environment)


MARK = "WRONG PACKAGE. Please install the package from Neuron Repository - pip.repos.neuron.amazonaws.com"
INSTALL = "run `pip install -r requirements/neuron-legacy.txt`, which names AWS's own package index"
# Versions of the public index's placeholders.
PLACEHOLDERS = {
    "transformers-neuronx": (0, 1),
    "torch-neuronx": (1, 0),
    "neuronx-cc": (1, 0),
    "libneuronxla": (1, 0),
    "nki": (0, 0, 1),
}


def install(site: Path, name: str, version: str, description: str, package: str, code: str) -> None:
    """Write a distribution as pip would install it."""
    information = site / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    headers = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: Proprietary\n"
    (information / "METADATA").write_text(f"{headers}\n{description}\n", encoding="utf-8")
    (site / package).mkdir()
    (site / package / "__init__.py").write_text(code, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first folder on Python's module search path."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def refusal(module: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        import_neuron(module, LEGACY_REQUIREMENTS)
    return str(caught.value)


def test_missing_module_names_the_install_command() -> None:
    assert refusal("neuronx_of_no_index") == f"neuronx_of_no_index is not installed: {INSTALL}"


def test_compiler_placeholder_is_detected_without_an_import(site: Path) -> None:
    """Its folder has a hyphen in its name. All placeholders are reported together."""
    install(site, "neuronx-cc", "1.0.post1", MARK, "neuronx-cc", f"raise ImportError({MARK!r})")
    install(site, "torch-neuronx", "1.0", MARK, "torch_neuronx", f"raise ImportError({MARK!r})")
    with pytest.raises(ModelLoadError) as caught:
        refuse_placeholders(REQUIREMENTS)
    assert str(caught.value) == (
        "torch-neuronx 1.0, neuronx-cc 1.0.post1: an empty placeholder from the public package index, not the Neuron "
        "SDK: run `pip install -r requirements/neuron.txt`, which names AWS's own package index"
    )


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [line.partition(" #")[0].strip() for line in text.splitlines() if line and not line.startswith("#")]


def package(line: str) -> str:
    return re.split(r"[<>=]", line)[0]


@pytest.mark.parametrize("name", [REQUIREMENTS, LEGACY_REQUIREMENTS])
def test_placeholders_do_not_satisfy_the_requirements(name: str) -> None:
    """So pip fails if AWS's index cannot be reached, instead of installing placeholders."""
    required = lines(name)
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in required
    pinned = [line for line in required if package(line) in PLACEHOLDERS]
    versions = [(package(line), re.search(r"[>=]=([\d.]+)", line)) for line in pinned]
    assert len(versions) == 3
    for which, version in versions:
        assert version is not None
        numbers = tuple(int(part) for part in version[1].rstrip(".").split("."))
        assert numbers[: len(PLACEHOLDERS[which])] > PLACEHOLDERS[which], which
