"""Engines of other distributions: found by name beside those that are built in; errors name where one is from."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends import registry
from backends.scripted import ScriptedBackend
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.plugins import BACKENDS
from tests.distributions import distribute
from verifier_server.settings import SettingsError, from_flags

ENGINE = """
from specpair.engines.errors import ModelLoadError
from backends.scripted import load

def refuse(options, progress):
    raise ModelLoadError("model: this engine reads no files", "model")

def fail(options, progress):
    raise LookupError("no such\\nweights")

def nothing(options, progress):
    return None

number = 5
"""
NAMES = {
    "mine": "load",
    "refusing": "refuse",
    "failing": "fail",
    "empty": "nothing",
    "scripted": "fail",
    "odd": "number",
}


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions: one with engines."""
    values = {name: f"toy_engine:{function}" for name, function in NAMES.items()} | {"lost": "no_such_module:load"}
    distribute(tmp_path, "toy-engine", "1.2", {BACKENDS: values}, ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("toy_engine", None)


def refusal(name: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        registry.load(name, LoadOptions(model=Path("7")))
    return str(caught.value)


def test_engine_of_another_distribution_is_loaded_by_its_name() -> None:
    progress: list[float] = []
    backend = registry.load("mine", LoadOptions(model=Path("7"), slots=2), progress.append)
    assert isinstance(backend, ScriptedBackend) and (backend.script.seed, backend.slots) == (7, 2)
    assert progress == [1.0] and not registry.compiles("mine", LoadOptions())


def test_built_in_engine_wins_over_one_of_the_same_name() -> None:
    assert isinstance(registry.load("scripted", LoadOptions(model=Path("7"))), ScriptedBackend)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lost", "lost of toy-engine 1.2 cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("odd", "odd of toy-engine 1.2: toy_engine:number is no function"),
        ("failing", "failing of toy-engine 1.2 failed: LookupError: no such weights"),
        ("empty", "empty of toy-engine 1.2 must return a Backend, not None"),
        ("refusing", "model: this engine reads no files"),
    ],
)
def test_error_of_a_plug_in_names_its_distribution_unless_it_is_typed(name: str, message: str) -> None:
    assert refusal(name) == message


def test_name_in_two_distributions_is_refused(site: Path) -> None:
    distribute(site, "other-engine", "3", {BACKENDS: {"mine": "toy_engine:load"}})
    assert refusal("mine") == (
        "mine is in several distributions, other-engine 3, toy-engine 1.2: uninstall all but one"
    )


def test_unknown_engine_is_named_with_those_of_plug_ins() -> None:
    known = "llama_cpp, torch, mlx, neuron_legacy, empty, failing, lost, mine, odd, refusing"
    assert refusal("abacus") == f"unknown backend 'abacus': choose one of {known}"


def test_verifier_takes_them_for_target_and_draft_model() -> None:
    settings, _ = from_flags(["--backend", "mine", "--draft-backend", "mine", "--draft-model", "1"], {})
    assert (settings.backend, settings.draft_engine) == ("mine", "mine")
    for flag in ("--backend", "--draft-backend"):
        with pytest.raises(SettingsError, match=r"'abacus' is unknown, choose one of .*, lost, mine, odd, refusing"):
            from_flags([flag, "abacus", "--draft-model", "1"], {})
