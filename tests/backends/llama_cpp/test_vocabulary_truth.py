"""What vocabularies in the field do: several end ids, tokens of a fine-tune, no begin token, one that a chat template
writes again, pieces that are no UTF-8, padding. Each is a small file, read by llama.cpp."""

from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter, TokenType

from backends.llama_cpp.model import LlamaVocabulary, read_gguf_vocabulary
from backends.trial.tiny_llama import tiny_tokenizer
from models.commands.description import describe_gguf
from models.hub.gguf_head import read_head
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
