"""The catalogue of draft models: each entry is whole, and is found for its family."""

import re
from pathlib import Path

import pytest

from models.errors import BadCatalogue
from models.hub.catalogue import drafters_for, read_catalogue
from models.hub.names import parse_name

QWEN_3 = "12be0ee629d69a43e3d7422e5cd8e3572f47c4a642055703cffafa91d845c8d7"
LLAMA = "46bf7723c37a7b59df84b7ce3073cbdf1b22259bddcce923197f6c5acd26df66"


def test_each_entry_can_be_pulled_and_found() -> None:
    for entry in read_catalogue():
        assert parse_name(entry.name).tag and entry.bytes > 1e8 and entry.licence
        assert entry.targets or entry.vocabulary
        assert entry.vocabulary == "" or re.fullmatch("[0-9a-f]{64}", entry.vocabulary)


@pytest.mark.parametrize(
    ("target", "vocabulary", "found"),
    [
        ("a-fine-tune", LLAMA, ["bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"]),
        ("Llama-3.1-8B-Instruct", None, ["bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"]),
        ("llama-3.2-1b-instruct-q8_0", LLAMA, []),  # it would draft for itself
        ("qwen3-8b-q4_k_m", None, ["Qwen/Qwen3-0.6B-GGUF:Q8_0"]),
        ("another-fine-tune", QWEN_3, ["Qwen/Qwen3-0.6B-GGUF:Q8_0"]),
        ("qwen3-with-another-vocabulary", "f" * 64, []),
        ("llama-3-with-another-vocabulary", "f" * 64, []),
    ],
)
def test_drafters_are_found_by_vocabulary_or_else_by_name(
    target: str, vocabulary: str | None, found: list[str]
) -> None:
    assert [each.name for each in drafters_for(target, vocabulary)] == found


RIGHT = {"name": '"u/m:Q8_0"', "vocabulary": '""', "targets": '["m-*"]', "bytes": "5", "licence": '"MIT"'}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"size": "5"}, ".*size"),
        ({"name": '"m"'}, "'m' is not the name of a model"),
        ({"vocabulary": '"abc"'}, "vocabulary is 'abc', and must be a SHA-256"),
        ({"targets": "[1]"}, r"targets is \[1\], and must be names"),
        ({"targets": "1"}, ""),
        ({"bytes": "0"}, "bytes is 0, and must be a whole number above 0"),
        ({"bytes": '"5"'}, "bytes is '5', and must be"),
        ({"licence": "1"}, "licence is 1, and must be a text"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    wrong = tmp_path / "catalogue.toml"
    wrong.write_text("[[drafter]]\n" + "\n".join(f"{key} = {value}" for key, value in (RIGHT | changed).items()))
    with pytest.raises(BadCatalogue, match=f"drafter 1: {said}"):
        read_catalogue(wrong)


def test_an_entry_that_lacks_a_field_and_a_file_that_is_no_catalogue_are_told(tmp_path: Path) -> None:
    lacks = tmp_path / "catalogue.toml"
    lacks.write_text('[[drafter]]\nname = "u/m"\n')
    with pytest.raises(BadCatalogue, match="drafter 1: it has no targets"):
        read_catalogue(lacks)
    lacks.write_text('[drafter]\nname = "u/m"\n')
    with pytest.raises(BadCatalogue, match=r"write \[\[drafter\]\] above each"):
        read_catalogue(lacks)
    with pytest.raises(BadCatalogue, match="no catalogue"):
        read_catalogue(tmp_path)
