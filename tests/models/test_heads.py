"""Models with heads: what their files declare, and that llama.cpp loads them with their heads."""

import ctypes
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import DEFAULT_DRAFT, DEFAULT_HEAD, DEFAULT_TARGET
from models.errors import ExportError
from models.gguf_file import read_gguf
from models.heads import KINDS, make_head_model, with_head
from tests.paths import ROOT

RECORDS = json.loads((ROOT / "tests/backends/llama_cpp/head_drafts.json").read_text(encoding="utf-8"))["records"]
ARCHITECTURES = {"stdlib": "glm4moe", "glm4moe": "glm4moe", "qwen35": "qwen35", "mimo2": "mimo2"}
HEADS = {"stdlib": 1, "glm4moe": 1, "qwen35": 1, "mimo2": 3}


@pytest.mark.parametrize("kind", HEADS)
def test_file_declares_heads_and_holds_them_in_the_last_layers(tmp_path: Path, kind: str) -> None:
    make_head_model(kind, tmp_path / "model.gguf")
    model = read_gguf(tmp_path / "model.gguf")
    assert (model.architecture, model.get("nextn_predict_layers")) == (ARCHITECTURES[kind], HEADS[kind])
    projections = [f"blk.{index}.nextn.eh_proj.weight" for index in range(model.layers - HEADS[kind], model.layers)]
    assert [tensor.name for tensor in model.tensors if "eh_proj" in tensor.name] == projections


@pytest.mark.parametrize("kind", HEADS)
def test_weights_are_those_of_the_recorded_drafts_to_the_bit(tmp_path: Path, kind: str) -> None:
    """The drafts of llama.cpp's own program are recorded, so every machine must make the same model."""
    make_head_model(kind, tmp_path / "model.gguf")
    digest = hashlib.sha256()
    for tensor in sorted(read_gguf(tmp_path / "model.gguf").tensors, key=lambda tensor: tensor.name):
        digest.update(tensor.data.tobytes())
    assert {record["weights"] for record in RECORDS if record["kind"] == kind} == {digest.hexdigest()}


@pytest.mark.parametrize("kind", HEADS)
def test_llama_cpp_loads_the_heads(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("backends.llama_cpp.library", reason="needs llama-cpp-python")  # also silences its log
    from llama_cpp import llama_cpp as api

    make_head_model(kind, tmp_path / "model.gguf")
    parameters = api.llama_model_default_params()
    parameters.load_mtp = True
    model = api.llama_model_load_from_file(str(tmp_path / "model.gguf").encode(), parameters)
    assert model
    settings = api.llama_context_default_params()
    settings.n_ctx = 64
    target = api.llama_init_from_model(model, settings)
    settings.ctx_type, settings.ctx_other = api.LLAMA_CONTEXT_TYPE_MTP, target
    heads = api.llama_init_from_model(model, settings)
    assert target and heads
    assert api.llama_model_n_layer_nextn(model) == HEADS[kind]
    for context in (heads, target):
        api.llama_free(ctypes.c_void_p(context))
    api.llama_model_free(model)


def test_target_with_its_head_goes_on_as_without(tmp_path: Path, engine: Any) -> None:
    make_head_model("stdlib", tmp_path / "model.gguf")
    plain, joined = engine(DEFAULT_TARGET), engine(tmp_path / "model.gguf")
    for text in ("import os\n\ndef read(path):\n", "class Shape:\n    def __init__(self, a, b):\n        self."):
        ids, start = plain.encode(text, special=True), 0
        for _ in range(60):
            own, other = (model.logits(ids[start:], start)[-1] for model in (plain, joined))
            [*_, second, first] = np.sort(own)
            tied = first - second < 0.1  # the sums of attention have another order, which decides ties
            assert tied or own.argmax() == other.argmax()
            start = len(ids)
            ids.append(int(own.argmax()))


def test_head_fits_its_target_only(tmp_path: Path) -> None:
    head = read_gguf(DEFAULT_HEAD)
    with pytest.raises(ExportError, match="not one of a model with 2 layers of width 128: train its own"):
        with_head(read_gguf(DEFAULT_DRAFT), head)
    make_head_model("qwen35", tmp_path / "model.gguf")
    with pytest.raises(ExportError, match="cannot add a head to a qwen35 model"):
        with_head(read_gguf(tmp_path / "model.gguf"), head)


def test_unknown_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=f"unknown kind 'gpt2': choose one of {', '.join(KINDS)}"):
        make_head_model("gpt2", tmp_path / "model.gguf")
