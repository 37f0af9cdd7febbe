"""The loop that measures a head drafts what llama.cpp's own program drafts."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("backends.llama_cpp.library", reason="needs llama-cpp-python")

from lab.benchmarks.head_acceptance import generated, opened  # noqa: E402
from models.heads import make_head_model  # noqa: E402
from tests.paths import ROOT  # noqa: E402

RECORDS = json.loads((ROOT / "tests/backends/llama_cpp/head_drafts.json").read_text(encoding="utf-8"))["records"]


@pytest.mark.parametrize("record", [each for each in RECORDS if each["kind"] != "mimo2"], ids=lambda each: each["kind"])
def test_text_and_drafts_equal_the_record(tmp_path: Path, record: dict[str, Any]) -> None:
    make_head_model(record["kind"], tmp_path / "model.gguf")
    options = Namespace(length=len(record["prompt"]), tokens=len(record["text"]), threads=1)
    with opened(tmp_path / "model.gguf") as model:
        rounds = generated(model, record["prompt"], record["k"], options)
    assert (rounds.text, rounds.drafts) == (record["text"], record["drafts"])
