"""The vocabulary read from `tokenizer.json` equals the one that llama.cpp reads from a GGUF file of the same model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.llama_cpp.model import read_gguf_vocabulary
from models import DEFAULT_TARGET
from models.export import export_hf
from specpair.engines.errors import ModelLoadError
from specpair.engines.model_files import read_chat_templates
from specpair.engines.vocabulary import Kind, Vocabulary
from tests.models.conftest import TinyModel

pytest.importorskip("tokenizers", reason="needs the extra in requirements/torch.txt")

from backends.hugging_face import HfVocabulary, read_vocabulary  # noqa: E402 - as above
from tests.stand_ins.tiny_folders import tokenizer_of

pytestmark = pytest.mark.engine("torch")

TEXTS = [
    "",
    " ",
    "def main():\n    return 0\n",
    "naïve 日本語 🙂👩‍👧 \x00 e\u0301",
    "<|end|> is <|begin|>",
    "  \n\n\t if  if",
]


@pytest.fixture(scope="module")
def pair() -> tuple[Vocabulary, Vocabulary]:
    """The default pair's vocabulary, read by llama.cpp and by `tokenizers`."""
    theirs, _ = read_gguf_vocabulary(DEFAULT_TARGET)
    text = json.dumps(tokenizer_of(DEFAULT_TARGET))
    return theirs, HfVocabulary(text, size=theirs.size, begin=0, ends=frozenset({1}))


def test_default_pair_has_equal_fingerprints_in_both_readers(pair: tuple[Vocabulary, Vocabulary]) -> None:
    theirs, ours = pair
    assert ours.fingerprint == theirs.fingerprint
    assert ours.kinds == theirs.kinds


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("parse_control", [False, True])
def test_default_pair_encodes_equally_in_both_readers(
    pair: tuple[Vocabulary, Vocabulary], text: str, parse_control: bool
) -> None:
    theirs, ours = pair
    for add_begin in (False, True):
        expected = theirs.encode(text, add_begin=add_begin, parse_control=parse_control)
        assert ours.encode(text, add_begin=add_begin, parse_control=parse_control) == expected


def test_folder_and_gguf_file_made_of_it_have_equal_fingerprints(tmp_path: Path) -> None:
    model = TinyModel(tmp_path / "tiny")
    export_hf(model.folder, tmp_path / "tiny.gguf")
    theirs, _ = read_gguf_vocabulary(tmp_path / "tiny.gguf")
    ours = read_vocabulary(model.folder, 264)
    assert ours.fingerprint == theirs.fingerprint
    assert ours.kinds[261:] == [Kind.UNUSED] * 3, "ids beyond the tokenizer's"
    assert ours.encode("  if <|end|>") == theirs.encode("  if <|end|>")


def sentencepiece() -> dict[str, Any]:
    """A tokenizer like those of Llama 2 and Gemma: spaces are ▁, characters without a token are spelled in bytes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a", "é", "<turn>", "▁▁"]
    added = [(0, True), (1, True), (2, True), (len(tokens) - 2, False), (len(tokens) - 1, False)]
    return {
        "added_tokens": [
            {"id": at, "content": tokens[at], "special": special, "normalized": False, "single_word": False}
            | {"lstrip": False, "rstrip": False}
            for at, special in added
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": [["▁", "a"]],
        },
    }


def test_sentencepiece_spaces_and_bytes_are_read() -> None:
    vocabulary = HfVocabulary(json.dumps(sentencepiece()), size=270, begin=1, ends=frozenset({2}))
    assert vocabulary.pieces[3 + 0xE2] == b"\xe2"
    assert [vocabulary.pieces[at] for at in (260, 261, 262, 264)] == [b"a", b" a", "é".encode(), b"  "]
    assert vocabulary.decode(vocabulary.encode(" aé🙂 <s>")) == " aé🙂 <s>".encode()
    assert vocabulary.kinds[:3] == [Kind.CONTROL] * 3
    assert vocabulary.kinds[263] is Kind.ORDINARY


def with_tokens(**special: bool) -> HfVocabulary:
    """The default target's vocabulary with added tokens of these names, each marked as special or not."""
    content = tokenizer_of(DEFAULT_TARGET)
    start = len(content["model"]["vocab"])
    for at, (name, is_special) in enumerate(special.items(), start):
        content["added_tokens"].append({**content["added_tokens"][0], "id": at, "content": name, "special": is_special})
    return HfVocabulary(json.dumps(content), size=start + len(special), begin=0, ends=frozenset({1}))


def test_end_tokens_are_recognised_by_name() -> None:
    names = {"<|im_end|>": True, "<|tool_call|>": False, "<|eot_id|>": False, "<think>": False, "<unused7>": True}
    vocabulary = with_tokens(**names)
    im_end, tool, eot, think, unused = range(4096, 4101)
    assert vocabulary.ends == {1, im_end, eot}
    assert [vocabulary.kinds[at] for at in (im_end, tool, eot)] == [Kind.CONTROL] * 3, (
        "also where the tokenizer does not mark it as special"
    )
    assert vocabulary.kinds[think] is Kind.ORDINARY
    assert vocabulary.kinds[unused] is Kind.UNUSED
    assert vocabulary.decode([think]) == b"<think>"
    for name in ("<|tool_call|>", "<|im_end|>"):
        assert not set(vocabulary.encode(f"a{name}")) & set(range(4096, 4101)), (
            "control tokens spelled in text stay text"
        )
        assert set(vocabulary.encode(f"a{name}", parse_control=True)) & {im_end, tool}


def test_chat_templates_are_read_from_each_place(tmp_path: Path) -> None:
    assert read_chat_templates(tmp_path) == {}
    listed = '[{"name": "default", "template": "x"}, {"name": "tool_use", "template": "t"}]'
    (tmp_path / "tokenizer_config.json").write_text(f'{{"chat_template": {listed}}}')
    assert read_chat_templates(tmp_path) == {"default": "x", "tool_use": "t"}
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "y"}')
    assert read_chat_templates(tmp_path) == {"default": "y"}
    (tmp_path / "chat_template.jinja").write_text("z")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("r")
    assert read_chat_templates(tmp_path) == {"default": "z", "rag": "r"}


def _stating(**fields: object) -> Callable[[Path], object]:
    """A function that sets fields of config.json."""

    def damage(path: Path) -> None:
        config = path.parent / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **fields}))

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "has no tokenizer.json: with transformers, AutoTokenizer"),
        (lambda path: path.write_text("{"), "tokenizer.json is no tokenizer that can be read"),
        (lambda path: path.write_text('{"model": {}}'), "tokenizer.json is no tokenizer that can be read"),
        (lambda path: (path.parent / "config.json").write_text("[]"), "config.json holds no JSON object"),
        (lambda path: (path.parent / "config.json").write_text("{"), "config.json is no readable JSON"),
        (_stating(eos_token_id={"a": 1}), r'config.json: eos_token_id is {"a": 1}: a token id, or a list of ids'),
        (_stating(bos_token_id=[0, "x"]), r'config.json: bos_token_id is \[0, "x"\]: a token id, or a list of ids'),
        (_stating(bos_token_id=99999), "bos_token_id is 99999, and the model has ids 0 to 263"),
        (_stating(bos_token_id=-1), "bos_token_id is -1"),
    ],
)
def test_unreadable_file_is_named(tmp_path: Path, damage: Callable[[Path], object], words: str) -> None:
    model = TinyModel(tmp_path / "tiny")
    damage(model.folder / "tokenizer.json")
    with pytest.raises(ModelLoadError, match=words):
        read_vocabulary(model.folder, 264)


def test_tokenizer_larger_than_its_model_is_refused(tmp_path: Path) -> None:
    model = TinyModel(tmp_path / "tiny")
    with pytest.raises(ModelLoadError, match="ids up to 260, the model only 100"):
        read_vocabulary(model.folder, 100)
