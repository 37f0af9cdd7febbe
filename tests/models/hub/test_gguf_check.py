"""Files over which llama.cpp would end the process, or that are not whole, are refused in a line; others are loaded."""

import math
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.llama_cpp.model import check_gguf, read_gguf_vocabulary
from backends.trial.tiny_llama import TinyModel, write_tiny_gguf
from models.errors import BadHead
from models.gguf_file import Field, Gguf, Tensor, read_gguf, write_gguf
from models.hub.gguf_check import check_model, read_parts
from models.hub.gguf_head import read_head
from specpair.engines.errors import ModelLoadError
from tests.paths import ROOT
from tests.stand_ins.tiny_architectures import split_gguf, write_tiny_architecture

U32, I32, F32, STR = GGUFValueType.UINT32, GGUFValueType.INT32, GGUFValueType.FLOAT32, GGUFValueType.STRING
EXTREMES = [0, 1, 3, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**60, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_tiny_gguf(TinyModel(folder / "tiny"), folder / "tiny.gguf")
    return folder / "tiny.gguf"


def _refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        check_gguf(path)
    told = str(caught.value)
    assert str(path) in told and "\n" not in told and len(told) < 600 + len(str(path))
    return told


def _changed(tiny: Path, folder: Path, change: Callable[[Gguf], Gguf]) -> Path:
    path = folder / "changed.gguf"
    write_gguf(change(read_gguf(tiny)), path)
    return path


STATED = [
    *(("llama.block_count", U32, value, "must be a whole number from 1 to 512") for value in (0, 513, 2**31 - 1)),
    ("llama.block_count", U32, 512, "there are 20 tensors"),
    ("llama.block_count", STR, "two", "must be a whole number"),
    *(("llama.context_length", U32, value, "must be a whole number from 1") for value in (0, 2**31, 2**32 - 1)),
    ("llama.embedding_length", U32, 2**31 - 1, "its tensor 'token_embd.weight' is (64, 264)"),
    ("llama.embedding_length", U32, 1, "its tensor 'token_embd.weight' is (64, 264)"),
    ("llama.attention.head_count", U32, 2**32 - 1, "must be a whole number from 0"),
    ("llama.attention.sliding_window", U32, 2**31 - 1, "must be a whole number from 0 to 16777216"),
    ("llama.attention.head_count", U32, 3, "its tensor 'blk.0.attn_q.weight' is (64, 64)"),
    ("llama.attention.head_count_kv", (I32,), [1, 2**31 - 1], "its tensor 'blk.1.attn_k.weight' is (64, 32)"),
    ("llama.attention.head_count_kv", (I32,), [1], "there are 2 blocks"),
    ("llama.attention.head_count", (I32,), [2, -1], "must be a whole number from 0"),
    ("llama.attention.key_length", U32, 2**31, "must be a whole number from 0"),
    *(
        ("llama.rope.dimension_count", U32, value, "must be even, above 0, and no more than a head's 32")
        for value in (0, 3, 34)
    ),
    ("llama.rope.dimension_count", U32, 2, "must be a head's 32"),
    *(
        ("llama.attention.layer_norm_rms_epsilon", F32, value, "must be a number from 0")
        for value in (-1.0, math.nan, math.inf)
    ),
    ("llama.rope.scaling.type", STR, "x", "must be one of none, linear, yarn, longrope"),
    ("llama.expert_count", U32, 513, "must be a whole number from 0 to 512"),
    ("llama.expert_count", U32, 8, "there are 8 experts"),
    ("llama.expert_used_count", U32, 1, "there are 0 experts"),
    ("llama.expert_group_count", U32, 2, "there are 0 experts"),
    ("llama.nextn_predict_layers", U32, 3, "there are 2 blocks"),
    ("tokenizer.ggml.tokens", (STR,), ["a"] * 264, "has 264 tokens, of which 1 differ"),
    ("tokenizer.ggml.tokens", (STR,), ["a\0b", "a\0c"] + [f"{at}" for at in range(262)], "of which 263 differ"),
    ("tokenizer.ggml.tokens", U32, 5, "is no array of the type that it must have"),
    ("tokenizer.ggml.tokens", (STR,), ["a", "b"], "token_type has 264 items for 2 tokens"),
    ("tokenizer.ggml.token_type", (I32,), [1], "token_type has 1 items for 264 tokens"),
    ("tokenizer.ggml.scores", (U32,), [0] * 264, "is no array of the type"),
    ("tokenizer.ggml.scores", (F32,), [0.0], "scores has 1 items for 264 tokens"),
    ("tokenizer.ggml.merges", (U32,), [0], "is no array of the type"),
    ("tokenizer.ggml.model", STR, "llama", "has none for the byte 0, which a text may have"),
    ("tokenizer.ggml.pre", (U32,), [1], "is not of the type that it must have"),
    ("split.count", GGUFValueType.UINT16, 3, "name the first, whose name ends with -00001-of-00003.gguf"),
]


@pytest.mark.parametrize(("key", "kind", "value", "words"), STATED)
def test_what_a_file_states_is_checked(
    tiny: Path, tmp_path: Path, key: str, kind: Any, value: object, words: str
) -> None:
    field = Field(value, GGUFValueType.ARRAY, kind[0]) if isinstance(kind, tuple) else Field(value, kind)
    path = _changed(tiny, tmp_path, lambda model: replace(model, fields={**model.fields, key: field}))
    assert words in _refusal(path)
    with pytest.raises(ModelLoadError):
        read_gguf_vocabulary(path)


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("qwen3moe", "rope.dimension_count", 2, "must be a head's 32"),
        ("granitehybrid", "rope.dimension_count", 0, "must be even, above 0"),
        ("lfm2", "attention.head_count", 1, "its tensor 'blk.1.attn_q.weight' is (64, 64)"),
        ("lfm2", "attention.head_count", 4, "its tensor 'blk.1.attn_q.weight' is (64, 64)"),
    ],
)
def test_heads_that_llama_cpp_does_not_compare_itself_are_checked(
    tmp_path: Path, name: str, key: str, value: int, words: str
) -> None:
    """With each of these, llama.cpp ended the process, or never ended a pass."""
    write_tiny_architecture(name, tmp_path / "whole.gguf")
    check_gguf(tmp_path / "whole.gguf")
    field = {f"{name}.{key}": Field(value, U32)}
    path = _changed(tmp_path / "whole.gguf", tmp_path, lambda model: replace(model, fields={**model.fields, **field}))
    assert words in _refusal(path)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("blk.0.attn_norm.weight", "F16", "in F16, and llama.cpp takes it in F32 alone on CPUs"),
        ("blk.0.attn_q.weight", "I8", "is of the type I8, which holds no weights"),
    ],
)
def test_types_of_tensors_that_are_not_computed_are_refused(
    tiny: Path, tmp_path: Path, name: str, kind: str, words: str
) -> None:
    numbers = {"F16": np.float16, "I8": np.int8}[kind]

    def change(model: Gguf) -> Gguf:
        retyped = [
            Tensor(each.name, each.data.astype(numbers), GGMLQuantizationType[kind]) if each.name == name else each
            for each in model.tensors
        ]
        return replace(model, tensors=retyped)

    assert words in _refusal(_changed(tiny, tmp_path, change))


def test_an_alignment_that_llama_cpp_does_not_take_is_refused(tiny: Path, tmp_path: Path) -> None:
    fields = {"general.alignment": Field(2, U32), "general.name": Field("odd", STR)}
    path = _changed(tiny, tmp_path, lambda model: replace(model, fields={**model.fields, **fields}))
    assert "no multiple of 32" in _refusal(path)


def test_every_part_of_a_split_model_is_checked(tmp_path: Path) -> None:
    write_tiny_gguf(TinyModel(tmp_path / "tiny"), tmp_path / "split.gguf")
    parts = split_gguf(tmp_path / "split.gguf", 8)
    assert [len(head.tensors) for head in read_parts(parts[0])] == [8, 8, 4] and check_gguf(parts[0]) == parts[0]
    assert f"name the first, whose name ends with -00001-of-0000{len(parts)}.gguf" in _refusal(parts[1])
    content = parts[1].read_bytes()
    parts[1].write_bytes(content[:-100])
    size = len(content)
    with pytest.raises(BadHead) as caught:
        read_parts(parts[0])
    assert str(caught.value) == f"{parts[1]} is incomplete: fetch it again (it has {size - 100} of {size} bytes)"
    parts[1].unlink()
    assert f"and {parts[1].name} is not beside it: fetch it" in _refusal(parts[0])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_anywhere_is_incomplete(tiny: Path, tmp_path: Path, share: float) -> None:
    content = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: max(4, int(share * len(content)))])
    assert "incomplete: fetch it again (" in _refusal(path)


def _with(content: bytes, at: int, width: int, value: int) -> bytes:
    return content[:at] + (value % 2 ** (8 * width)).to_bytes(width, "little") + content[at + width :]


@given(st.floats(0, 1), st.sampled_from([4, 8]), st.sampled_from(EXTREMES))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_of_a_head_is_read_or_refused(tiny: Path, tmp_path: Path, at: float, width: int, value: int) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(_with(tiny.read_bytes(), int(at * read_head(tiny).size), width, value))
    with suppress(BadHead):  # and nothing else
        check_model("odd", read_parts(path))


LOADER = """
import os, random, sys
from pathlib import Path
from backends.llama_cpp.library import lib
from backends.llama_cpp.model import check_gguf
from specpair.engines.errors import ModelLoadError
from models.hub.gguf_head import read_head

whole, path = Path(sys.argv[1]), Path(sys.argv[2])
content, draw, size, counts = whole.read_bytes(), random.Random(1), read_head(whole).size, [0, 0, 0]
extremes = [0, 1, 3, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**60, 2**63 - 1, 2**63, 2**64 - 1]
for case in range(400):
    width = draw.choice((4, 8))
    # The first thousand bytes and the last two hold most of the numbers; texts of tokens are between them.
    at = draw.choice((draw.randrange(4, 1100), draw.randrange(size - 2000, size)))
    value = draw.choice(extremes) % 2 ** (8 * width)
    path.write_bytes(content[:at] + value.to_bytes(width, "little") + content[at + width:])
    try:
        check_gguf(path)
    except ModelLoadError:
        counts[0] += 1
        continue
    child = os.fork()
    if child == 0:
        params = lib.llama_model_default_params()
        params.use_extra_bufts = False
        lib.llama_model_load_from_file(str(path).encode(), params)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    counts[1 if status == 0 else 2] += 1
    if status:
        print(f"{at} {width} {value}: {status}", file=sys.stderr)
print(*counts)
"""


@pytest.mark.slow
def test_llama_cpp_survives_what_passes_the_check(tiny: Path, tmp_path: Path) -> None:
    """Each file is loaded in a process of its own, which an assertion of the library would end."""
    command = [sys.executable, "-c", LOADER, str(tiny), str(tmp_path / "odd.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=True)
    refused, loaded, ended = map(int, done.stdout.split())
    assert ended == 0 and refused > 50 and loaded > 50, done.stderr
