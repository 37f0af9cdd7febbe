"""Makes a Q4_0 copy of a draft model's file, once, in the cache folder: CPUs compute Q4_0 faster than wider types.

A draft step takes as long as the weights take to be read and decoded, and weights that are rounded change how often a
draft is right, not the text. Files "in 4 bits" hold wider types, too: K-quants need rows of a multiple of 256 values,
and fall back to Q5_0 and Q8_0 elsewhere, which llama.cpp does not repack for the processor's vectors.

    python -m backends.llama_cpp.requantised FILE COPY

is what a child process runs, since the library ends a process in which an assertion of it fails.
"""

import ctypes
import hashlib
import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from backends.llama_cpp.selfcheck import module_command, no_core_file, run_child
from backends.machine import cache_folder
from models.errors import BadHead
from models.hub.gguf_check import check_model
from models.hub.gguf_head import GgufHead, read_head
from specpair.engines.backend import Progress
from specpair.shared_files import lock, replacing

MOST_SHARE = 0.8  # of the bytes of a step that a copy may read to be made
LEAST_BYTES = 64 << 20  # of a step: smaller models take little time anyway
_GROUP, _GROUP_BYTES = 32, 18  # values that Q4_0 keeps together, and their bytes
_PATIENCE = 3600.0  # seconds for a child: some 100 million weights a second
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_log = logging.getLogger("specpair.llama_cpp")


def requantised(path: Path, progress: Progress | None = None, folder: Path | None = None) -> Path:
    """The Q4_0 copy of a model's file; `path` itself if a copy would hardly be faster, or cannot be made.

    A copy of a file that is gone is removed. `progress`: is told the share that is written.
    `folder`: where the copies are; None: in the user's cache folder.
    """
    cache = cache_folder()
    folder = folder or (None if cache is None else cache / "requantised")
    if folder is None:
        return path
    path = path.absolute()
    try:
        # A step reads no more than the file, so most that would be too small need not be looked into.
        return path if path.stat().st_size < LEAST_BYTES else _copy_of(path, folder, progress)
    except BadHead:  # the loader says what is wrong
        return path
    except OSError as error:
        _warn(path, error)
        return path


def _copy_of(path: Path, folder: Path, progress: Progress | None) -> Path:
    place, stat = folder / hashlib.sha256(os.fsencode(path)).hexdigest()[:24], path.stat()
    about = {"file": str(path), "bytes": stat.st_size, "changed": stat.st_mtime_ns}
    copy, record = place / f"{path.stem}-q4_0.gguf", place / "about.json"

    def recorded() -> Path | None:
        """The recorded file to load; None: no valid record for this content."""
        told = _read(record)
        if told is None or told["of"] != about:
            return None
        return path if told["reason"] else copy if copy.is_file() else None

    if (found := recorded()) is not None:
        return found
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("ab") as held:
        lock(held.fileno(), wait=True)
        if (found := recorded()) is not None:  # another process was faster
            return found
        for each in folder.glob("*/about.json"):  # copies of files that are gone
            if (other := _read(each)) is not None and not Path(other["of"]["file"]).is_file():
                shutil.rmtree(each.parent, ignore_errors=True)
        reason = _make(path, copy, progress)
        with replacing(record) as file:
            file.write(json.dumps({"of": about, "reason": reason}).encode())
    return path if reason else copy


def _make(path: Path, copy: Path, progress: Progress | None) -> str:
    """Write the copy. Returns why it could not, or an empty text. Raises BadHead, and OSError for a full disk."""
    head = read_head(path)
    if (head.get("split.count") or 1) > 1:
        return "the model has several files"
    check_model(str(path), [head])
    stored, fast, whole = _bytes(head)
    if stored < LEAST_BYTES or fast > MOST_SHARE * stored:
        return f"a step would read {fast} bytes in place of {stored}"
    free = shutil.disk_usage(copy.parent).free
    if free < 2 * whole:
        raise OSError(f"it would have {whole >> 20} MiB, and {copy.parent} has {free >> 20} MiB left")
    _log.info("%s is requantised to Q4_0, once: this processor then drafts faster", path.name)
    part = copy.with_suffix(".part")

    def written() -> None:
        if progress is not None and part.exists():
            progress(min(part.stat().st_size / whole, 1.0))

    try:
        child = run_child(module_command(__spec__.name, str(path), str(part)), _PATIENCE, waiting=written)
        if child is not None and child.status == 0:
            part.replace(copy)
            return ""
    finally:
        part.unlink(missing_ok=True)
    reason = "no process could be started" if child is None else f"llama.cpp {child}"
    _warn(path, reason)
    return reason


def _warn(path: Path, reason: object) -> None:
    _log.warning("%s is computed as it is stored: no copy in Q4_0 could be made: %s", path.name, reason)


def _bytes(head: GgufHead) -> tuple[int, int, int]:
    """The bytes that a step reads of a file, those it would read in Q4_0, and those of the whole copy.

    A step reads one row of the embedding, unless that is the output as well.
    """
    stored = head.tensor_bytes()
    fast = {
        each.name: stored[each.name]
        if len(each.shape) < 2 or each.shape[0] % _GROUP
        else math.prod(each.shape) // _GROUP * _GROUP_BYTES
        for each in head.tensors
    }
    read = stored.keys() - ({_EMBEDDING} if _OUTPUT in stored else set())
    whole = head.size + sum(fast.values())
    return sum(stored[name] for name in read), sum(fast[name] for name in read), whole


def _read(record: Path) -> dict[str, Any] | None:
    """The record of a file and its copy; None: it is missing or damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(record.read_bytes())
        return {"of": {**known["of"], "file": str(known["of"]["file"])}, "reason": str(known["reason"])}
    return None


def main(arguments: Sequence[str]) -> int:
    """Write the file `arguments[0]` in Q4_0 to `arguments[1]`. Returns the library's result: 0 if it worked."""
    from backends.llama_cpp.library import lib

    no_core_file()
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.output_tensor_type = lib.LLAMA_FTYPE_MOSTLY_Q4_0, lib.GGML_TYPE_Q4_0
    params.allow_requantize = params.pure = True
    source, copy = (each.encode(errors="surrogateescape") for each in arguments)
    return int(lib.llama_model_quantize(source, copy, ctypes.byref(params)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
