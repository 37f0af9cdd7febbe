"""`specpair doctor`: what it finds on this machine and of a verifier, and what it says to mend."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.cli import doctor, doctor_checks
from drafter_client.cli.doctor_checks import (
    METAL,
    NEURON,
    NVIDIA,
    WIDE,
    Gpu,
    InstalledEngine,
    engines,
    gpus,
    of_llama_cpp,
    time_passes,
)
from drafter_client.modes import memory
from specpair.engines.errors import EngineCrash
from tests.drafter_client.support import Ticks, Verifier

TOY = ("--backend", "scripted", "--model", "1", "--draft-model", "1")
LLAMA = [InstalledEngine("llama_cpp", "0.3.36", "")]
NOBODY = "http://127.0.0.1:9"  # the port of `discard`


@pytest.fixture(autouse=True)
def _no_memory_of_earlier_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert memory.memory_file() == tmp_path / "specpair" / "modes.json"


def _told(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    status = doctor.run([*flags, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_what_a_verifier_would_gain_is_what_mode_auto_expects(
    verifier: Verifier, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = _told(capsys, *TOY, "--verifier", verifier.url)
    assert (status, told["missing"]) == (0, [])
    assert [each["engine"] for each in told["models"]] == ["scripted", "scripted"]
    assert all(0 < each["step_ms"] and 0 < each["pass_of_8_ms"] for each in told["models"])
    assert [each["kv_bytes"] for each in told["models"]] == [0, 0], "the scripted engine keeps no keys and values"
    [gain] = told["verifiers"]
    assert gain["url"] == verifier.url and gain["round_trip_ms"] > 0 and len(gain["pass_ms"]) >= 8
    assert set(gain["expected"]) == {"target", "remote"}
    assert gain["fastest"] == max(gain["expected"], key=lambda mode: gain["expected"][mode]["likely"])


def test_tables_for_people(verifier: Verifier, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run([*TOY, "--verifier", verifier.url]) == 0
    out = capsys.readouterr().out
    for words in (
        "This machine",
        "Engines",
        "Models on scripted",
        f"The verifier at {verifier.url}",
        "Nothing is miss",
    ):
        assert words in out


def test_what_cannot_be_used_is_missing_and_the_rest_is_told(
    verifier: Verifier, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is not there, a verifier that does not answer, and one whose vocabulary the draft model lacks."""
    nowhere = ("--model", "nowhere.gguf")
    status, told = _told(capsys, *nowhere, "--verifier", f"{NOBODY},{verifier.url}")
    assert status == 1
    [model, away, foreign] = (each["what"] for each in told["missing"])
    assert "nowhere.gguf" in model and NOBODY in away and "cannot draft for" in foreign
    [gain] = told["verifiers"]
    assert list(gain["expected"]) == ["target"] and gain["refusal"] == foreign
    assert [each["name"] for each in told["models"]] == ["stdlib-draft-q8_0"]


def test_an_engine_that_is_not_installed_has_the_command_that_installs_it() -> None:
    none = {each.name: each for each in engines(lambda _: None)}
    assert "llama" in none["llama_cpp"].mend and "torch" in none["torch"].mend and "docs/" in none["neuron_legacy"].mend
    assert {each.version for each in none.values()} == {None}
    here = {each.name: each for each in engines(lambda module: module)}
    assert {each.mend for each in here.values()} == {""}
    assert here["sglang"].version == "installed"  # a server elsewhere: the version of httpx is none of it


def test_llama_cpp_that_is_not_installed_needs_a_compiler() -> None:
    missing = [InstalledEngine("llama_cpp", None, "pip install x")]
    assert [each.mend for each in of_llama_cpp(missing, [], lambda _: "/usr/bin/c++")] == ["pip install x"]
    assert "build-essential" in of_llama_cpp(missing, [], lambda _: None)[1].mend


@pytest.mark.parametrize(("kind", "option"), [(NVIDIA, "-DGGML_CUDA=on"), (METAL, "-DGGML_METAL=on")])
def test_a_gpu_that_llama_cpp_does_not_use(kind: str, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.llama_cpp.library import lib

    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: False)
    [found] = of_llama_cpp(LLAMA, [Gpu(NEURON, "neuron0"), Gpu(kind, "one")])
    assert option in found.mend and "--force-reinstall" in found.mend
    assert of_llama_cpp(LLAMA, [Gpu(NEURON, "neuron0")]) == []
    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: True)
    assert of_llama_cpp(LLAMA, [Gpu(kind, "one")]) == []


def test_llama_cpp_that_crashes_here_is_told_with_its_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash() -> bool:
        raise EngineCrash("died by SIGILL. Repair it: command")

    monkeypatch.setattr(doctor_checks, "extra_buffers", crash)
    assert [each.what for each in of_llama_cpp(LLAMA, [])] == ["died by SIGILL. Repair it: command"]


def test_neuron_devices_are_seen(tmp_path: Path) -> None:
    for name in ("neuron1", "neuron0", "neurons", "tty"):
        (tmp_path / name).touch()
    assert [each.name for each in gpus(tmp_path) if each.kind == NEURON] == ["neuron0", "neuron1"]


def test_passes_of_one_token_and_of_eight() -> None:
    times = time_passes(ScriptedBackend(Script(seed=1)), Ticks(0.001))
    assert times == pytest.approx({1: 0.001, WIDE: 0.001})
