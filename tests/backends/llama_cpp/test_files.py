"""What GGUF files in the field say, each made small and read by llama.cpp: several end ids, tokens of a fine-tune, no
begin token or one that a chat template writes again, pieces that are no UTF-8; models that do not generate text."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType, GGUFWriter, TokenType

from backends import registry
from backends.llama_cpp.model import LlamaVocabulary, read_gguf_vocabulary
from backends.trial.tiny_llama import tiny_tokenizer
from models import DEFAULT_TARGET
from models.commands.description import describe_gguf
from models.gguf_file import Field, read_gguf, write_gguf
from models.hub.gguf_head import read_head
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.engines.vocabulary import Kind, PromptSpan, cannot_draft

TINY = tiny_tokenizer()["model"]
NAMES: list[str] = ["<|im_start|>", "<|im_end|>", *list(TINY["vocab"])[2:]]
START, END, SIZE = 0, 1, len(NAMES)
CONTROL, USER, UNUSED = TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNUSED
Token = tuple[str, TokenType]


def _read(folder: Path, *added: Token, name: str = "model", **stated: Any) -> LlamaVocabulary:
    """The vocabulary of a file with the tokens `added` behind `NAMES`, which its head tells as well.

    `stated`: what else it says of its tokenizer.
    """
    path = folder / f"{name}.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*NAMES, *(text for text, _ in added)])
    plain = [CONTROL if token in (START, END) else TokenType.NORMAL for token in range(SIZE)]
    writer.add_token_types([*plain, *(kind for _, kind in added)])
    writer.add_token_merges([" ".join(pair) for pair in TINY["merges"]])
    for field, value in ({"eos_token_id": END} | stated).items():
        (writer.add_bool if isinstance(value, bool) else writer.add_uint32)(f"tokenizer.ggml.{field}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = read_gguf_vocabulary(path)[0]
    listed = describe_gguf(name, [read_head(path)]).vocabulary
    assert listed is not None and (listed.pieces, listed.kinds) == (read.pieces, read.kinds)
    assert (listed.begin, listed.end, listed.ends) == (read.begin, read.end, read.ends)
    assert listed.ordinary == read.fingerprint.ordinary
    assert listed.begin is None or listed.adds_begin == (read.encode("a")[0] == read.begin)
    return read


def test_each_end_token_ends_a_text_and_templates_write_the_stated_one(tmp_path: Path) -> None:
    turn = ("<|endoftext|>", CONTROL), ("<|eot_id|>", CONTROL)
    read = _read(tmp_path, *turn, eos_token_id=SIZE)
    assert read.ends == {END, SIZE, SIZE + 1}
    assert read.end == SIZE and read.spelled(read.end) == "<|endoftext|>"


def test_tokens_that_a_fine_tune_added_are_found_and_pair_with_the_base_model(tmp_path: Path) -> None:
    base = _read(tmp_path, name="base")
    tuned = _read(tmp_path, ("<tool>", USER), ("<|think|>", CONTROL), name="tuned")
    assert tuned.kinds[SIZE:] == [Kind.ORDINARY, Kind.CONTROL]
    assert tuned.encode("if<tool>if")[1] == SIZE  # text, also where control tokens are not meant
    assert SIZE + 1 not in tuned.encode("<|think|>")
    assert tuned.encode("<|think|>", parse_control=True) == [SIZE + 1]
    assert cannot_draft("base", base, "tuned", tuned) is None and cannot_draft("tuned", tuned, "base", base) is None


@pytest.mark.parametrize("stated", [{}, {"bos_token_id": START, "add_bos_token": False}])
def test_no_begin_token_is_put_before_a_text(tmp_path: Path, stated: dict[str, Any]) -> None:
    read = _read(tmp_path, **stated)
    assert read.encode("if") == [NAMES.index("if")]


@pytest.mark.parametrize("template", ["<|im_start|>if", "if"])
def test_a_begin_token_comes_once_also_where_a_template_writes_it(tmp_path: Path, template: str) -> None:
    read = _read(tmp_path, bos_token_id=START, add_bos_token=True)
    assert read.encode_parts([PromptSpan(template, True)]) == [START, NAMES.index("if")]


def test_pieces_that_are_no_utf_8_have_their_bytes(tmp_path: Path) -> None:
    read = _read(tmp_path)
    snowman = "☃".encode()
    ids = read.encode("☃")
    assert [read.pieces[token] for token in ids] == [snowman[at : at + 1] for at in range(3)]
    assert read.decode(ids) == snowman
    assert sorted(b"".join(read.pieces[2 : 2 + 256])) == [*range(256)]


WIDTH, INNER, WORDS = 32, 64, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
LINEAR = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH)}
FORWARD = {"ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}


def _bert() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of an encoder of one layer, as BERT has them."""
    yield from {"token_embd": (len(WORDS), WIDTH), "token_types": (2, WIDTH), "position_embd": (64, WIDTH)}.items()
    yield "token_embd_norm", (WIDTH,)
    for name, shape in (LINEAR | FORWARD | {"attn_output": (WIDTH, WIDTH)}).items():
        yield f"blk.0.{name}", shape
    yield from (("blk.0.attn_output_norm", (WIDTH,)), ("blk.0.layer_output_norm", (WIDTH,)))


def _t5() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of an encoder and a decoder of one layer each, as T5 has them."""
    yield "token_embd", (len(WORDS), WIDTH)
    for side in ("enc", "dec"):
        yield f"{side}.output_norm", (WIDTH,)
        for name in ("attn_norm", "ffn_norm", *(["cross_attn_norm"] if side == "dec" else [])):
            yield f"{side}.blk.0.{name}", (WIDTH,)
        for name, shape in (LINEAR | FORWARD | {"attn_o": (WIDTH, WIDTH), "attn_rel_b": (32, 2)}).items():
            yield f"{side}.blk.0.{name}", shape
    for name in "qkvo":
        yield f"dec.blk.0.cross_attn_{name}", (WIDTH, WIDTH)


def _written(path: Path, architecture: str, weights: Iterator[tuple[str, tuple[int, ...]]]) -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_relative_attn_buckets_count(32)
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(WORDS)
    for name, shape in weights:
        writer.add_tensor(f"{name}.weight", np.full(shape, 0.01, dtype=np.float32))
        if architecture == "bert" and name not in ("token_embd", "token_types", "position_embd"):
            writer.add_tensor(f"{name}.bias", np.zeros(shape[:1], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as refused:
        registry.load("llama_cpp", LoadOptions(path, context_length=64, slots=1, threads=1))
    return str(refused.value)


def _variant(path: Path, key: str, value: Any, kind: GGUFValueType) -> Path:
    """The target that ships, with one statement more."""
    model = read_gguf(DEFAULT_TARGET)
    write_gguf(replace(model, fields={**model.fields, f"{model.architecture}.{key}": Field(value, kind)}), path)
    return path


@pytest.mark.parametrize("architecture", ["bert", "t5"])
def test_encoders_are_refused(tmp_path: Path, architecture: str) -> None:
    path = _written(tmp_path / "other.gguf", architecture, _bert() if architecture == "bert" else _t5())
    why = {"bert": "its tokens attend to later ones", "t5": "it has an encoder"}[architecture]
    assert _refusal(path) == (
        f"other does not generate text token by token ({why}): it is a model for embeddings, ranking or "
        "translation. Choose a causal language model"
    )


@pytest.mark.parametrize("pooling", [1, 2, 3, 4])
def test_a_model_that_pools_is_refused(tmp_path: Path, pooling: int) -> None:
    path = _variant(tmp_path / "pooled.gguf", "pooling_type", pooling, GGUFValueType.UINT32)
    assert "its file states a pooling of all positions" in _refusal(path)
    with pytest.raises(ModelLoadError, match="pooled does not generate text"):
        read_gguf_vocabulary(path)  # as the torch engine reads a GGUF file
