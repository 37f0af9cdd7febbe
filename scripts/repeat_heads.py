"""Repeats a model's heads of keys and values so that more devices can share it. The text stays the same.

    python -m scripts.repeat_heads Qwen3-32B Qwen3-32B-32-heads --heads 32

The engine torch shares a model out by these heads: Qwen3-32B has 8 of them, so 8 devices are the most. With each of
them four times, 32 devices can have one each. Some queries that asked one head ask a copy of it then. The cache of a
text grows as the heads do, and a device has the part of it that one head takes.

Weights are copied as bytes, whatever their type; they need not fit into memory.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_REPEATED = re.compile(r"(.*\.)?self_attn\.[kv]_proj\.(weight|bias)")
_WEIGHTS, _CONFIG, _INDEX = ".safetensors", "config.json", "model.safetensors.index.json"


def repeat_heads(source: Path, target: Path, heads: int) -> int:
    """Write the model of the folder `source` with `heads` heads of keys and values to the folder `target`, which must
    not be there. Returns by how many bytes it is larger. Raises ValueError, OSError."""
    config = json.loads((source / _CONFIG).read_text(encoding="utf-8"))
    had, queries = config.get("num_key_value_heads"), config.get("num_attention_heads")
    if not isinstance(had, int) or not isinstance(queries, int):
        raise ValueError(f"{source / _CONFIG} says no num_key_value_heads and num_attention_heads")
    if heads <= had or heads % had or queries % heads:
        raise ValueError(f"--heads {heads}: expected is a multiple of {had}, and a divisor of {queries}")
    if "quantization_config" in config:
        raise ValueError(f"{source} is quantised: its weights cannot be repeated by heads")
    target.mkdir(parents=True)
    grown = sum(_rewrite(file, target / file.name, had, heads // had) for file in sorted(source.glob(f"*{_WEIGHTS}")))
    if not grown:
        raise ValueError(f"{source} has no weights by the names …self_attn.k_proj.weight and …v_proj.weight")
    for file in filter(Path.is_file, source.iterdir()):
        if file.suffix != _WEIGHTS:
            shutil.copyfile(file, target / file.name)
    _write(target / _CONFIG, {**config, "num_key_value_heads": heads})
    if (index := target / _INDEX).is_file():
        found = json.loads(index.read_text(encoding="utf-8"))
        if "total_size" in found.get("metadata", {}):
            found["metadata"]["total_size"] += grown
            _write(index, found)
    return grown


def _rewrite(source: Path, target: Path, had: int, times: int) -> int:
    """Copy a file of weights, with each of `had` heads `times` times. Returns by how many bytes it is larger."""
    content = np.memmap(source, mode="r")
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(content[8:start].tobytes())
    new, end = dict(header), 0
    names = sorted(header.keys() - {"__metadata__"}, key=lambda name: header[name]["data_offsets"])
    for name in names:
        first, last = header[name]["data_offsets"]
        shape, size = list(header[name]["shape"]), last - first
        if start + last > len(content):
            raise ValueError("a file of weights ends too early: fetch it again")
        if _REPEATED.fullmatch(name):
            if shape[0] % had:
                raise ValueError(f"{source}: {name} has {shape[0]} rows, which are no {had} heads")
            shape[0], size = shape[0] * times, size * times
        new[name] = {**header[name], "shape": shape, "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(new).encode()
    encoded += b" " * (-len(encoded) % 8)
    with target.open("xb") as written:
        written.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in names:
            weights = content[start:][slice(*header[name]["data_offsets"])]
            if _REPEATED.fullmatch(name):
                weights = weights.reshape(had, -1).repeat(times, axis=0)
            weights.tofile(written)
    return int(end - (len(content) - start))


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script. Returns the exit status: 1 if the model cannot be rewritten."""
    parser = argparse.ArgumentParser("python -m scripts.repeat_heads", description="Repeat heads of keys and values.")
    parser.add_argument("source", type=Path, help="folder of safetensors")
    parser.add_argument("target", type=Path, help="new folder")
    parser.add_argument("--heads", type=int, required=True, help="heads of keys and values that it has then")
    options = parser.parse_args(arguments)
    try:
        grown = repeat_heads(options.source, options.target, options.heads)
    except (ValueError, OSError) as error:
        print(f"repeat_heads: {error}", file=sys.stderr)
        return 1
    print(f"repeat_heads: {options.target} has {options.heads} heads of keys and values, {grown / 1e9:.1f} GB more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
