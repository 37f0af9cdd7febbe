"""Writes GGUF files: from a Hugging Face folder, or from a GGUF file in another precision or with more layers.

    python -m models.export out/target target.gguf --type q8_0
    python -m models.export target.gguf heavy.gguf --pad-layers 24 --pad-width 16

Needs ``numpy`` and ``gguf`` only.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from models.errors import ExportError
from models.gguf_file import Gguf, read_gguf, write_gguf
from models.huggingface import read_huggingface
from models.transform import MAX_LAYERS, TYPES, padded, quantised, widened

__all__ = ["ExportError", "convert_gguf", "export_hf", "main", "pad_layers"]


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
    parser.add_argument("source", type=Path, help="a Hugging Face folder, or a GGUF file")
    parser.add_argument("destination", type=Path, help="the GGUF file to write; an existing one is replaced")
    parser.add_argument(
        "--type", dest="kind", choices=TYPES, help="type of the matrices (default: q8_0 for a folder, else unchanged)"
    )
    parser.add_argument(
        "--pad-layers",
        type=int,
        default=0,
        metavar="N",
        help=f"add N layers that cost time and memory but do not change the output (at most {MAX_LAYERS} in all)",
    )
    parser.add_argument(
        "--pad-width",
        type=int,
        default=1,
        metavar="N",
        help="make the MLP of every layer N times as wide, which costs time and memory but does not change the output",
    )
    parser.add_argument("--name", help="name of the model, for a folder (default: the folder's name)")
    parser.add_argument("--license", dest="license_id", help="licence of the weights, for a folder: an SPDX identifier")
    parser.add_argument("--description", help="one sentence about the model, for a folder")
    return parser


def _summary(path: Path, model: Gguf) -> str:
    """One line about the file that was written: its size, layers and types of matrices."""
    types = sorted({tensor.kind.name for tensor in model.tensors if tensor.data.ndim > 1})
    return f"wrote {path}: {path.stat().st_size / 1e6:.1f} MB, {model.layers} layers, {' and '.join(types)}"


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
        print(_summary(options.destination, read_gguf(options.destination)))
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
