"""`verifier models`: the command of both ends, with the memory that llama.cpp has here."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from backends.llama_cpp import load
from models import DEFAULT_DRAFT
from specpair.engines.load_options import FreeMemory
from tests.stand_ins.hub import serving
from verifier_server import program


def test_a_pull_warns_of_the_memory_that_the_engine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = DEFAULT_DRAFT.read_bytes()
    with serving({"u/toy": {"Toy-F16.gguf": model}}) as stand_in:
        monkeypatch.setattr(constants, "ENDPOINT", stand_in.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(load, "room", lambda _options: FreeMemory(len(model)))
        assert program.models(["pull", "u/toy"]) == 0
    said = capsys.readouterr()
    assert Path(said.out.strip()).read_bytes() == model
    assert said.err.startswith("verifier: u/toy: ") and "lower the context; it is fetched all the same" in said.err
