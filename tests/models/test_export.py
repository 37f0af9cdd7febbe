"""Exported and padded models: llama.cpp computes the reference logits, and bad input is named in errors."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from models import DEFAULT_TARGET, DEFAULT_TWIN
from models.export import ExportError, convert_gguf, export_hf, main, pad_layers, padded, widened
from models.gguf_file import Field, Gguf, Tensor, read_gguf, write_gguf
from models.safetensors_file import read_tensors

IDS = [0, 45, 200, 17, 100, 258, 3, 3, 77, 260, 12, 5]


def _distance(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Root mean square difference of logits, in units of their spread."""
    return float(np.sqrt(np.mean((actual - expected) ** 2)) / expected.std())


@pytest.mark.parametrize(("kind", "tolerance"), [("f16", 0.005), ("q8_0", 0.05), ("q4_0", 0.4)])
def test_llama_cpp_equals_the_reference(
    tmp_path: Path, tiny: Any, engine: Any, reference: Any, kind: str, tolerance: float
) -> None:
    model = tiny()
    export_hf(model.folder, tmp_path / "tiny.gguf", kind)
    expected = reference(model.config, model.weights, IDS)
    assert expected.std() > 0.5  # a nearly constant model would agree with anything
    # Relative to the spread of the logits; weights in a wrong order give about 1.4.
    assert _distance(engine(tmp_path / "tiny.gguf").logits(IDS), expected) < tolerance


def test_untied_lm_head_is_exported_and_used(tmp_path: Path, tiny: Any, engine: Any, reference: Any) -> None:
    model = tiny(tie_word_embeddings=False)
    export_hf(model.folder, tmp_path / "tiny.gguf", "f16")
    expected = reference(model.config, model.weights, IDS)
    assert _distance(engine(tmp_path / "tiny.gguf").logits(IDS), expected) < 0.005


def test_rope_settings_are_read_from_either_entry(tmp_path: Path, tiny: Any, engine: Any, reference: Any) -> None:
    model = tiny(rope_theta=500.0)
    changed = {key: value for key, value in model.config.items() if key != "rope_theta"}
    changed["rope_parameters"] = {"rope_type": "default", "rope_theta": 500.0}
    (model.folder / "config.json").write_text(json.dumps(changed), encoding="utf-8")
    export_hf(model.folder, tmp_path / "tiny.gguf", "f16")
    expected = reference(model.config, model.weights, IDS)
    assert _distance(engine(tmp_path / "tiny.gguf").logits(IDS), expected) < 0.005


def test_metadata_names_the_model(tmp_path: Path, tiny: Any) -> None:
    about = ("a model", "PSF-2.0", "tiny")
    export_hf(tiny().folder, tmp_path / "tiny.gguf", name=about[0], license_id=about[1], description=about[2])
    fields = read_gguf(tmp_path / "tiny.gguf").fields
    assert [fields[f"general.{key}"].value for key in ("name", "license", "description")] == list(about)
    assert fields["llama.context_length"].value == 512
    assert fields["llama.rope.freq_base"].value == 10000.0


def test_tokenizer_is_exported(tmp_path: Path, tiny: Any, engine: Any) -> None:
    folder = tiny().folder
    (folder / "tokenizer.json").rename(tmp_path / "tokenizer.json")  # a pair shares one, in the parent folder
    export_hf(folder, tmp_path / "tiny.gguf")
    model = engine(tmp_path / "tiny.gguf")
    vocabulary = read_gguf(tmp_path / "tiny.gguf").fields["tokenizer.ggml.tokens"].value
    ids = model.encode("if  if é\n", special=True)
    assert [vocabulary[token] for token in ids[:4]] == ["<|begin|>", "if", "\u0120", "\u0120if"]
    assert model.decode(ids[1:]).decode() == "if  if é\n"
    assert vocabulary[-3:] == ["[PAD261]", "[PAD262]", "[PAD263]"]


def test_requantised_file_equals_a_direct_export(tmp_path: Path, tiny: Any) -> None:
    folder = tiny().folder
    export_hf(folder, tmp_path / "f16.gguf", "f16")
    for kind in ("q8_0", "q4_0"):
        export_hf(folder, tmp_path / "direct.gguf", kind)
        convert_gguf(tmp_path / "f16.gguf", tmp_path / "converted.gguf", kind=kind)
        assert (tmp_path / "converted.gguf").read_bytes() == (tmp_path / "direct.gguf").read_bytes()


def test_q4_0_model_keeps_its_embeddings_in_q8_0(tmp_path: Path, tiny: Any) -> None:
    export_hf(tiny().folder, tmp_path / "tiny.gguf", "q4_0")
    kinds = {tensor.name: tensor.kind for tensor in read_gguf(tmp_path / "tiny.gguf").tensors}
    assert kinds["token_embd.weight"] == GGMLQuantizationType.Q8_0
    assert kinds["blk.0.ffn_down.weight"] == GGMLQuantizationType.Q4_0
    assert kinds["blk.0.attn_norm.weight"] == GGMLQuantizationType.F32


def test_rows_that_do_not_divide_into_blocks_stay_f16(tmp_path: Path, tiny: Any, engine: Any, reference: Any) -> None:
    model = tiny(intermediate_size=80)
    export_hf(model.folder, tmp_path / "tiny.gguf", "q8_0")
    kinds = {tensor.name: tensor.kind for tensor in read_gguf(tmp_path / "tiny.gguf").tensors}
    assert kinds["blk.0.ffn_down.weight"] == GGMLQuantizationType.F16
    expected = reference(model.config, model.weights, IDS)
    assert _distance(engine(tmp_path / "tiny.gguf").logits(IDS), expected) < 0.05


def test_coarse_file_cannot_be_requantised(tmp_path: Path, tiny: Any) -> None:
    export_hf(tiny().folder, tmp_path / "q4.gguf", "q4_0")
    with pytest.raises(ExportError, match=r"Q4_0, which has lost too much to become Q8_0: start from"):
        convert_gguf(tmp_path / "q4.gguf", tmp_path / "q8.gguf", kind="q8_0")
    convert_gguf(tmp_path / "q4.gguf", tmp_path / "again.gguf", kind="q4_0")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "q4.gguf").read_bytes()


def test_bfloat16_and_float32_weights_are_read(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5, 3.0e5]], dtype=np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    header = {
        "half": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [0, 6]},
        "whole": {"dtype": "F32", "shape": [1, 3], "data_offsets": [6, 18]},
    }
    encoded = json.dumps(header).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + upper.tobytes() + values.tobytes())
    tensors = read_tensors(path)
    np.testing.assert_allclose(tensors["half"], values, rtol=2**-7)
    np.testing.assert_array_equal(tensors["whole"], values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen2"}, "'qwen2' model, not llama"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "RoPE scaling"),
        ({"attention_bias": True}, "biases"),
        ({"hidden_act": "gelu"}, "another activation"),
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"num_hidden_layers": 3}, "lacks model.layers.2.input_layernorm.weight"),
        ({"intermediate_size": 128}, r"is \(96, 64\) where config.json calls for \(128, 64\)"),
        ({"vocab_size": 10}, "more ids than the 10"),
        ({"eos_token_id": [1, 2]}, "no single usable id for tokenizer.ggml.eos_token_id"),
    ],
)
def test_unsupported_folder_is_refused(tmp_path: Path, tiny: Any, changes: Any, message: str) -> None:
    model = tiny()
    if "vocab_size" in changes:
        model.weights["model.embed_tokens.weight"] = model.weights["model.embed_tokens.weight"][:10]
        model.write_weights()
    model.write_config(**changes)
    with pytest.raises(ExportError, match=message):
        export_hf(model.folder, tmp_path / "tiny.gguf")
    assert not (tmp_path / "tiny.gguf").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_file_is_named(tmp_path: Path, tiny: Any, name: str) -> None:
    folder = tiny().folder
    (folder / name).unlink()
    with pytest.raises(ExportError, match=rf"{name} does not exist"):
        export_hf(folder, tmp_path / "tiny.gguf")


@pytest.mark.parametrize("content", [b"", b"\xff" * 7, b"\x05\0\0\0\0\0\0\0[1,2]", b"\x02\0\0\0\0\0\0\0{"])
def test_damaged_weights_are_refused(tmp_path: Path, tiny: Any, content: bytes) -> None:
    folder = tiny().folder
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ExportError, match=r"model\.safetensors"):
        export_hf(folder, tmp_path / "tiny.gguf")


def test_truncated_weights_are_refused(tmp_path: Path, tiny: Any) -> None:
    weights = tiny().folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(ExportError, match="it ends before its data does"):
        export_hf(weights.parent, tmp_path / "tiny.gguf")


def test_unsupported_tokenizer_is_refused(tmp_path: Path, tiny: Any) -> None:
    path = tiny().folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    for change, message in (
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "does not split text as Llama 3"),
        ({"model": {"type": "Unigram"}}, "no byte-level BPE"),
    ):
        path.write_text(json.dumps({**tokenizer, **change}), encoding="utf-8")
        with pytest.raises(ExportError, match=message):
            export_hf(path.parent, tmp_path / "tiny.gguf")


def test_bad_sources_and_destinations_are_named(tmp_path: Path, tiny: Any) -> None:
    good = tmp_path / "good.gguf"
    export_hf(tiny().folder, good)
    text = tmp_path / "text.gguf"
    text.write_text("hello", encoding="utf-8")
    cases: list[tuple[Callable[[], None], str]] = [
        (lambda: convert_gguf(tmp_path / "none.gguf", tmp_path / "o"), "none.gguf does not exist"),
        (lambda: convert_gguf(text, tmp_path / "o"), "not a GGUF file"),
        (lambda: convert_gguf(good, good), "is the source itself"),
        (lambda: convert_gguf(good, tmp_path / "no" / "o"), "does not exist: create it first"),
        (lambda: convert_gguf(good, tmp_path), "is a folder"),
        (lambda: convert_gguf(good, tmp_path / "o", kind="q5_k"), "unknown type 'q5_k': choose one of f16, q8_0, q4_0"),
    ]
    for call, message in cases:
        with pytest.raises(ExportError, match=message):
            call()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.gguf", "text.gguf", "tiny"]


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.999])
def test_truncated_file_is_refused(tmp_path: Path, tiny: Any, share: float) -> None:
    export_hf(tiny().folder, tmp_path / "good.gguf")
    content = (tmp_path / "good.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[: max(8, int(share * len(content)))])
    with pytest.raises(ExportError, match="damaged or cut short"):
        convert_gguf(tmp_path / "cut.gguf", tmp_path / "o.gguf")


def test_failed_write_leaves_only_the_old_file(tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    destination = tmp_path / "out.gguf"
    destination.write_bytes(b"old")

    def fail(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ExportError, match=r"could not write .*: No space left on device"):
        export_hf(model.folder, destination)
    assert destination.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.gguf", "tiny"]


def test_command_line_exports_and_pads(tmp_path: Path, tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    out, padded = tmp_path / "o.gguf", tmp_path / "p.gguf"
    assert main([str(tiny().folder), str(out), "--type", "f16", "--name", "a model", "--license", "PSF-2.0"]) == 0
    assert main([str(out), str(padded), "--type", "q8_0", "--pad-layers", "3", "--pad-width", "2"]) == 0
    assert capsys.readouterr().out == (f"wrote {out}: 0.2 MB, 2 layers, F16\nwrote {padded}: 0.3 MB, 5 layers, Q8_0\n")


def test_command_line_reports_errors_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none"), str(tmp_path / "o.gguf")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'none'} does not exist: give a folder or a GGUF file\n"
    assert main([str(tmp_path / "none"), str(tmp_path / "o.gguf"), "--name", "x"]) == 1
    assert "a GGUF file keeps its own" in capsys.readouterr().err


def bare(architecture: str = "llama", fields: Mapping[str, Field] = MappingProxyType({})) -> Gguf:
    """A model of two layers with few tiny tensors."""
    tensors = [
        Tensor(f"blk.{index}.{part}.weight", np.full((2, 32), index + 1, dtype=np.float32), GGMLQuantizationType.F32)
        for index in (0, 1)
        for part in ("attn_q", "attn_output", "ffn_down")
    ]
    count = {f"{architecture}.block_count": Field(2, GGUFValueType.UINT32)}
    return Gguf(architecture, {**count, **fields}, tensors)


@pytest.mark.parametrize("source", [DEFAULT_TARGET, DEFAULT_TWIN], ids=["q8_0", "q4_0"])
@pytest.mark.parametrize("threads", [1, 2])
def test_padded_model_has_equal_logits_to_the_bit(tmp_path: Path, engine: Any, source: Path, threads: int) -> None:
    pad_layers(source, tmp_path / "heavy.gguf", 5, 3)
    light, heavy = engine(source, threads), engine(tmp_path / "heavy.gguf", threads)
    ids = light.encode("def read(path):\n    with open(path) as file:\n        return file.", special=True)
    np.testing.assert_array_equal(light.logits(ids), heavy.logits(ids))
    position = len(ids)
    for width in (1, 4, 1):  # a step of decoding, a draft to verify, a step again
        ids = [int(token) for token in range(300, 300 + width)]
        np.testing.assert_array_equal(light.logits(ids, position), heavy.logits(ids, position))
        position += width


def test_every_added_layer_has_its_own_bytes(tmp_path: Path) -> None:
    pad_layers(DEFAULT_TARGET, tmp_path / "heavy.gguf", 16)
    layer = sum(t.data.nbytes for t in read_gguf(DEFAULT_TARGET).tensors if t.name.startswith("blk.0."))
    grown = (tmp_path / "heavy.gguf").stat().st_size - DEFAULT_TARGET.stat().st_size
    assert 16 * layer <= grown < 16 * layer + 20_000  # names and metadata
    allocated = (tmp_path / "heavy.gguf").stat().st_blocks * 512
    assert allocated >= 24 * layer  # no holes in place of the zeros


def test_metadata_states_the_added_layers() -> None:
    heads = Field([4, 8], GGUFValueType.ARRAY, GGUFValueType.INT32)
    name = Field("a model", GGUFValueType.STRING)
    model = padded(bare(fields={"llama.attention.head_count": heads, "general.name": name}), 3)
    assert model.layers == 5
    assert model.get("attention.head_count") == [4, 8, 4, 8, 4]
    assert model.fields["general.name"].value == "a model +3 pad layers"
    assert model.fields["specpair.pad_layers"].value == 3


def test_padding_adds_up_and_padding_by_0_changes_nothing(tmp_path: Path, tiny: Any) -> None:
    export_hf(tiny().folder, tmp_path / "light.gguf", "q8_0")
    pad_layers(tmp_path / "light.gguf", tmp_path / "once.gguf", 2)
    pad_layers(tmp_path / "once.gguf", tmp_path / "twice.gguf", 3)
    assert read_gguf(tmp_path / "twice.gguf").layers == 7
    assert read_gguf(tmp_path / "twice.gguf").fields["specpair.pad_layers"].value == 5
    pad_layers(tmp_path / "light.gguf", tmp_path / "same.gguf", 0)
    assert (tmp_path / "same.gguf").read_bytes() == (tmp_path / "light.gguf").read_bytes()


@pytest.mark.parametrize(
    ("model", "layers", "message"),
    [
        (bare(), -1, "cannot add -1 layers"),
        (bare(), 511, r"2 \+ 511 layers are too many: llama.cpp takes 512, so add at most 510"),
        (bare("mamba"), 1, "cannot pad a mamba model"),
        (Gguf("llama", bare().fields, bare().tensors[:-1]), 1, "layer 1 has no ffn_down.weight"),
        (Gguf("llama", {}, bare().tensors), 1, "declares no llama.block_count"),
    ],
)
def test_unsupported_padding_is_refused(model: Gguf, layers: int, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        padded(model, layers)


def test_width_below_1_is_refused() -> None:
    with pytest.raises(ExportError, match="cannot make the layers 0 times as wide: give a number from 1 up"):
        widened(bare(), 0)
    with pytest.raises(ExportError, match="cannot pad a mamba model"):
        widened(bare("mamba"), 2)


def test_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    write_gguf(bare(fields={"split.count": Field(2, GGUFValueType.UINT16)}), tmp_path / "part.gguf")
    with pytest.raises(ExportError, match="one part of a split model: join the parts"):
        pad_layers(tmp_path / "part.gguf", tmp_path / "out.gguf", 1)
