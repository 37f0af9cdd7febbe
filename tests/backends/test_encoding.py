"""Every engine encodes alike: one table of texts, over the same vocabulary read by llama.cpp and from a model folder.

torch and mlx read the vocabulary of a folder by `read_vocabulary`, and torch that of a GGUF file as llama.cpp does.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gguf import GGUFWriter

from backends.llama_cpp.model import read_gguf_vocabulary
from specpair.engines.vocabulary import PromptSpan, Vocabulary

pytest.importorskip("tokenizers", reason="needs the extra in requirements/torch.txt")

from backends.hugging_face import read_vocabulary  # noqa: E402 - as above

pytestmark = pytest.mark.engine("torch")

NAMES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a", "b", "▁b", "<turn>"]
NAMES += ["[INST]", "<unused1>"]
BEGIN, END, SPACE, A, SPACE_A, B, SPACE_B, TURN, INST, UNUSED = 1, 2, *range(259, 267)
LINE = 3 + ord("\n")
NORMAL, UNKNOWN, CONTROL, USER, NOT_USED, BYTE = range(1, 7)  # types of tokens in GGUF files
KINDS = {0: UNKNOWN, BEGIN: CONTROL, END: CONTROL, TURN: USER, INST: CONTROL, UNUSED: NOT_USED}


class Settings(NamedTuple):
    """What the files of a model say about its texts."""

    spaces: bool  # whether a space is put before text
    begins: bool
    ends: bool


def gguf_file(folder: Path, settings: Settings) -> Vocabulary:
    writer = GGUFWriter(folder / "vocabulary.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(NAMES)
    writer.add_token_scores([0.0] * 259 + [-float(at) for at in range(len(NAMES) - 259)])
    writer.add_token_types([KINDS.get(at, BYTE if 3 <= at < 259 else NORMAL) for at in range(len(NAMES))])
    writer.add_bos_token_id(BEGIN)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(settings.begins)
    writer.add_add_eos_token(settings.ends)
    writer.add_add_space_prefix(settings.spaces)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf_vocabulary(folder / "vocabulary.gguf")[0]


def model_folder(folder: Path, settings: Settings, **tokenizer: Any) -> Vocabulary:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    steps[:0] = [{"type": "Prepend", "prepend": "▁"}] if settings.spaces else []
    sequence = [{"Sequence": {"id": "A", "type_id": 0}}]
    for name in ("<s>",) * settings.begins:
        sequence.insert(0, {"SpecialToken": {"id": name, "type_id": 0}})
    for name in ("</s>",) * settings.ends:
        sequence.append({"SpecialToken": {"id": name, "type_id": 0}})
    specials = {name: {"id": name, "ids": [at], "tokens": [name]} for name, at in (("<s>", BEGIN), ("</s>", END))}
    content = {
        "added_tokens": [
            {"id": at, "content": NAMES[at], "special": kind != USER, **plain} for at, kind in KINDS.items()
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": sequence, "pair": [], "special_tokens": specials},
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": {name: at for at, name in enumerate(NAMES)},
            "merges": [["▁", "a"], ["▁", "b"]],
        },
    }
    said = {"add_bos_token": settings.begins, "add_eos_token": settings.ends, "eos_token": "</s>"}
    for name, value in (("tokenizer", content | tokenizer), ("config", {"bos_token_id": BEGIN, "eos_token_id": [END]})):
        (folder / f"{name}.json").write_text(json.dumps(value))
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return read_vocabulary(folder, len(NAMES))


READERS: dict[str, Callable[[Path, Settings], Vocabulary]] = {"llama_cpp": gguf_file, "folder": model_folder}

# Text; its ids where spaces are put before text, and where they are not.
PLAIN: list[tuple[str, list[int], list[int]]] = [
    ("", [], []),
    ("a", [SPACE_A], [A]),
    (" a", [SPACE, SPACE_A], [SPACE_A]),
    ("\n", [SPACE, LINE], [LINE]),
    ("a\nb", [SPACE_A, LINE, B], [A, LINE, B]),
    ("a<turn>b", [SPACE_A, TURN, SPACE_B], [A, TURN, B]),
]
PARSED: list[tuple[str, list[int], list[int]]] = [
    ("<s>a", [BEGIN, SPACE_A], [BEGIN, A]),
    ("[INST]a b[INST]", [INST, SPACE_A, SPACE_B, INST], [INST, A, SPACE_B, INST]),
    ("a</s>", [SPACE_A, END], [A, END]),
    ("</s>\n[INST]", [END, SPACE, LINE, INST], [END, LINE, INST]),
]


@pytest.fixture(scope="module", params=[(reader, spaces) for reader in READERS for spaces in (True, False)], ids=str)
def read(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, bool]:
    reader, spaces = request.param
    return (
        lambda begins, ends: READERS[reader](tmp_path_factory.mktemp("model"), Settings(spaces, begins, ends)),
        spaces,
    )


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_texts_have_the_ids_of_the_table(
    read: tuple[Callable[[bool, bool], Vocabulary], bool], begins: bool, ends: bool
) -> None:
    vocabulary, spaces = read[0](begins, ends), read[1]
    assert (vocabulary.begin, vocabulary.end, vocabulary.ends) == (BEGIN, END, frozenset({END}))
    for texts, parse in ((PLAIN, False), (PLAIN, True), (PARSED, True)):
        for text, spaced, unspaced in texts:
            expected = spaced if spaces else unspaced
            assert vocabulary.encode(text, add_begin=False, parse_control=parse) == expected, text
            assert vocabulary.encode(text, parse_control=parse) == [BEGIN] * begins + expected, text
    for name in ("<s>", "</s>", "[INST]", "<unused1>"):
        assert not {BEGIN, END, INST, UNUSED} & set(vocabulary.encode(f"a{name}b", add_begin=False)), name


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_no_part_gets_a_space_that_it_would_not_have_in_the_whole(tmp_path: Path, scheme: str) -> None:
    """`first`: a space comes before a text, not after its control tokens."""
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    vocabulary = model_folder(tmp_path, Settings(True, True, True), normalizer=None, pre_tokenizer=metaspace)
    parts = [PromptSpan("<s>[INST]", True), PromptSpan("a\nb", False), PromptSpan("[INST]b", True)]
    whole = vocabulary.encode("<s>[INST]a\nb[INST]b", add_begin=False, parse_control=True)
    assert (
        vocabulary.encode_parts(parts) == vocabulary.encode_parts([PromptSpan("<s>[INST]a\nb[INST]b", True)]) == whole
    )
    assert (SPACE_A in whole) == (scheme == "always")
