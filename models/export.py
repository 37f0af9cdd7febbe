"""Writes GGUF files: from a Hugging Face folder, or from a GGUF file in another precision or with more layers.

    python -m models.export out/target target.gguf --type q8_0
    python -m models.export target.gguf heavy.gguf --pad-layers 24 --pad-width 16

Needs ``numpy`` and ``gguf`` only."""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType, quants

from models.errors import ExportError
from models.gguf_file import Gguf, Tensor, field_of, read_gguf, write_gguf
from models.huggingface import read_huggingface

TYPES: Final = ("f16", "q8_0", "q4_0")  # in capitals, the library's names

# The types to requantise from. Coarser types have lost precision already.
_FINE: Final = {
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q8_0,
}
MAX_LAYERS: Final = 512  # LLAMA_MAX_LAYERS: with more, llama.cpp aborts the process

_PADDABLE: Final = ("llama", "qwen2", "qwen3")  # a layer is: x += attention(norm(x)); x += mlp(norm(x))
_OUTPUTS: Final = ("attn_output", "ffn_down")
_NEURONS: Final = ("ffn_gate", "ffn_up")
_LAYER: Final = re.compile(r"blk\.(\d+)\.(.+)")
_PAD_COUNT: Final = "specpair.pad_layers"
_PAD_WIDTH: Final = "specpair.pad_width"
__all__ = ["ExportError", "convert_gguf", "export_hf", "main", "pad_layers"]


def padded(model: Gguf, layers: int) -> Gguf:
    """Return the model with ``layers`` more layers that add nothing to the residual stream.

    Each added layer copies the weights of an existing layer, in turn, but its two projections into the residual stream
    are zero. So the output is the same to the bit, while time and memory traffic per token grow as in a deeper model:
    every added layer has its own bytes in the file and its own KV cache.

    Raises ExportError for a negative count, more than 512 layers in all, or an unsupported architecture.
    """
    if layers < 0:
        raise ExportError(f"cannot add {layers} layers: give a number from 0 up")
    if layers == 0:
        return model
    originals = _layers(model)
    have = len(originals)
    if have + layers > MAX_LAYERS:
        raise ExportError(
            f"{have} + {layers} layers are too many: llama.cpp takes {MAX_LAYERS}, so add at most {MAX_LAYERS - have}"
        )

    def grown(key: str, value: Any) -> Any:
        if key == "block_count":
            return have + layers
        by_layer = isinstance(value, list) and len(value) == have
        return value + [value[index % have] for index in range(layers)] if by_layer else value

    def silent(part: str, tensor: Tensor, index: int) -> Tensor:
        # Zero bytes are zero weights in every GGML type: a block of zero bytes has scale zero.
        data = np.zeros_like(tensor.data) if part.split(".")[0] in _OUTPUTS else tensor.data
        return Tensor(f"blk.{index}.{part}", data, tensor.kind)

    added = [silent(*each, index) for index in range(have, have + layers) for each in originals[index % have]]
    count = _stated(model, _PAD_COUNT, 0) + layers
    return _restated(model, grown, f"+{layers} pad layers", {_PAD_COUNT: count}, [*model.tensors, *added])


def widened(model: Gguf, factor: int) -> Gguf:
    """Return the model with the MLP of every layer ``factor`` times as wide; the added neurons are idle.

    They copy the input weights of existing neurons, and their output weights are zero. So the output is the same to the
    bit, while the layers cost as much as those of a larger model.

    Raises ExportError for a factor below one, or an unsupported architecture.
    """
    if factor < 1:
        raise ExportError(f"cannot make the layers {factor} times as wide: give a number from 1 up")
    if factor == 1:
        return model
    _layers(model)

    def wide(key: str, value: Any) -> Any:
        if key != "feed_forward_length":
            return value
        return [one * factor for one in value] if isinstance(value, list) else value * factor

    tensors = [_wider(tensor, factor) for tensor in model.tensors]
    width = _stated(model, _PAD_WIDTH, 1) * factor
    return _restated(model, wide, f"x{factor} width", {_PAD_WIDTH: width}, tensors)


def _layers(model: Gguf) -> list[list[tuple[str, Tensor]]]:
    """The tensors of each layer, each with its name within the layer. Raises ExportError for an unsupported layer."""
    if model.architecture not in _PADDABLE:
        raise ExportError(f"cannot pad a {model.architecture} model: only {', '.join(_PADDABLE)} have known layers")
    layers: list[list[tuple[str, Tensor]]] = [[] for _ in range(model.layers)]
    for tensor in model.tensors:
        if (match := _LAYER.fullmatch(tensor.name)) and int(match[1]) < len(layers):
            layers[int(match[1])].append((match[2], tensor))
    for index, parts in enumerate(layers):
        missing = {f"{output}.weight" for output in _OUTPUTS} - {part for part, _ in parts}
        if missing:
            raise ExportError(f"cannot pad: layer {index} has no {' and no '.join(sorted(missing))}")
    return layers


def _stated(model: Gguf, key: str, usual: int) -> int:
    return int(model.fields[key].value) if key in model.fields else usual


def _restated(
    model: Gguf,
    change: Callable[[str, Any], Any],
    suffix: str,
    added: Mapping[str, int],
    tensors: list[Tensor],
) -> Gguf:
    """The model with other tensors. `change`: from a key under the architecture's name and its value to the new value.
    `suffix`: for the model's name."""
    fields, prefix = {}, f"{model.architecture}."
    for name, field in model.fields.items():
        value = change(name.removeprefix(prefix), field.value) if name.startswith(prefix) else field.value
        fields[name] = replace(field, value=f"{value} {suffix}" if name == "general.name" else value)
    return replace(model, fields={**fields, **{key: field_of(value) for key, value in added.items()}}, tensors=tensors)


def _wider(tensor: Tensor, factor: int) -> Tensor:
    """The tensor with ``factor`` times the neurons, if it belongs to an MLP; else the tensor itself."""
    match = _LAYER.fullmatch(tensor.name)
    part, _, what = match[2].partition(".") if match else ("", "", "")
    data = tensor.data
    if part in _NEURONS:  # (neurons, inputs), or (neurons) for a bias
        return replace(tensor, data=np.concatenate([data] * factor))
    if part == "ffn_down" and what == "weight":  # (outputs, neurons); a row consists of whole blocks
        idle = np.zeros((data.shape[0], data.shape[1] * (factor - 1)), data.dtype)
        return replace(tensor, data=np.concatenate([data, idle], axis=1))
    return tensor


def quantised(model: Gguf, kind: str) -> Gguf:
    """Return the model with every matrix in ``kind``, one of TYPES; vectors (norms, biases) are unchanged.

    Embeddings and an untied LM head stay in Q8_0 in a Q4_0 model, since their rounding matters most: 0.92, not 0.90, of
    the default target's sampled tokens then equal those in Q8_0; F16 embeddings gain nothing more. A matrix whose
    rows do not divide into the type's blocks is kept in F16.

    Raises ExportError for an unknown kind, and for input of another type that is coarser than Q8_0.
    """
    if kind not in TYPES:
        raise ExportError(f"unknown type {kind!r}: choose one of {', '.join(TYPES)}")
    matrices = GGMLQuantizationType[kind.upper()]
    fine = GGMLQuantizationType.Q8_0 if kind == "q4_0" else matrices
    kinds = {"token_embd.weight": fine, "output.weight": fine}
    tensors = [_requantised(tensor, kinds.get(tensor.name, matrices)) for tensor in model.tensors]
    stated = {
        "general.file_type": field_of(int(LlamaFileType[f"MOSTLY_{kind.upper()}"])),
        "general.quantization_version": field_of(2),  # of the block layouts; 2 since 2023
    }
    return replace(model, fields={**model.fields, **stated}, tensors=tensors)


def _requantised(tensor: Tensor, kind: GGMLQuantizationType) -> Tensor:
    if tensor.data.ndim < 2 or tensor.kind == kind:
        return tensor
    if tensor.kind not in _FINE:
        raise ExportError(
            f"{tensor.name} is {tensor.kind.name}, which has lost too much to become {kind.name}:"
            " start from the model in f16 or q8_0"
        )
    values = np.asarray(quants.dequantize(tensor.data, tensor.kind), dtype=np.float32)
    if values.shape[-1] % GGML_QUANT_SIZES[kind][0]:
        kind = GGMLQuantizationType.F16
    return Tensor(tensor.name, quants.quantize(values, kind), kind)


def export_hf(
    folder: Path,
    destination: Path,
    kind: str = "q8_0",
    *,
    pad: int = 0,
    width: int = 1,
    name: str | None = None,
    license_id: str | None = None,
    description: str | None = None,
) -> None:
    """Write the Llama model of a Hugging Face folder as GGUF with matrices of type ``kind``, one of TYPES.

    It gets ``pad`` more layers, and the MLP of every layer ``width`` times as wide, as in ``pad_layers``. Raises
    ExportError if the folder is no such model, the kind is unknown, or the destination is not writable.
    """
    model = read_huggingface(folder, name=name, license_id=license_id, description=description)
    write_gguf(widened(padded(quantised(model, kind), pad), width), destination)


def convert_gguf(source: Path, destination: Path, *, kind: str | None = None, pad: int = 0, width: int = 1) -> None:
    """Write a GGUF model again: requantised to ``kind`` unless that is None, and padded as ``export_hf`` does.

    Raises ExportError as ``pad_layers`` does, and for a source that is too coarse to requantise.
    """
    model = read_gguf(source)
    if destination.exists() and destination.samefile(source):
        raise ExportError(f"{destination} is the source itself: give another name")
    if kind is not None:
        model = quantised(model, kind)
    write_gguf(widened(padded(model, pad), width), destination)


def pad_layers(source: Path, destination: Path, layers: int, width: int = 1) -> None:
    """Write the model of ``source`` with ``layers`` more layers and the MLP of every layer ``width`` times as wide.

    Both change the cost of a forward pass, but not the output. The destination appears complete or not at all; an
    existing file is replaced. Raises ExportError for a missing or damaged source, more than 512 layers in all, or an
    unsupported architecture.
    """
    convert_gguf(source, destination, pad=layers, width=width)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m models.export",
        description="Write a model as a GGUF file for llama.cpp.",
        epilog=(
            "A folder must hold a Llama model (config.json, model.safetensors, tokenizer.json, the last one here or in"
            " the parent folder). A GGUF file can be requantised from f32, f16, bf16 or q8_0."
        ),
    )
    add = parser.add_argument
    add("source", type=Path, help="a Hugging Face folder, or a GGUF file")
    add("destination", type=Path, help="the GGUF file to write; an existing one is replaced")
    add("--type", dest="kind", choices=TYPES, help="type of the matrices (default: q8_0 for a folder, else unchanged)")
    text = f"add N layers that cost time and memory but do not change the output (at most {MAX_LAYERS} in all)"
    add("--pad-layers", type=int, default=0, metavar="N", help=text)
    text = "make the MLP of every layer N times as wide, which costs time and memory but does not change the output"
    add("--pad-width", type=int, default=1, metavar="N", help=text)
    add("--name", help="name of the model, for a folder (default: the folder's name)")
    add("--license", dest="license_id", help="licence of the weights, for a folder: an SPDX identifier")
    add("--description", help="one sentence about the model, for a folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, or 1 after one line on stderr."""
    options = _parser().parse_args(arguments)
    padding = {"pad": options.pad_layers, "width": options.pad_width}
    about = {key: getattr(options, key) for key in ("name", "license_id", "description")}
    try:
        if options.source.is_dir():
            export_hf(options.source, options.destination, options.kind or "q8_0", **padding, **about)
        elif any(about.values()):
            raise ExportError("--name, --license and --description are for a folder: a GGUF file keeps its own")
        else:
            convert_gguf(options.source, options.destination, kind=options.kind, **padding)
        path, model = options.destination, read_gguf(options.destination)
        types = sorted({tensor.kind.name for tensor in model.tensors if tensor.data.ndim > 1})
        print(f"wrote {path}: {path.stat().st_size / 1e6:.1f} MB, {model.layers} layers, {' and '.join(types)}")
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
