"""The catalogue of draft models: each entry is whole, and is found for its family."""

import re
from pathlib import Path

import pytest

from specpair.hub.catalogue import drafters_for, read_catalogue
from specpair.hub.errors import BadCatalogue
from specpair.hub.names import parse_name

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
        ("qwen3-8b-q4_k_m", "of a vocabulary that no entry states", ["Qwen/Qwen3-0.6B-GGUF:Q8_0"]),
        ("llama-3-with-another-vocabulary", "f" * 64, []),
    ],
)
def test_drafters_are_found_by_vocabulary_or_else_by_name(
    target: str, vocabulary: str | None, found: list[str]
) -> None:
    assert [each.name for each in drafters_for(target, vocabulary)] == found


def test_a_wrong_entry_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "catalogue.toml"
    wrong.write_text('[[drafter]]\nname = "u/m"\ntargets = []\nsize = 5\n')
    with pytest.raises(BadCatalogue, match=r"drafter 1: .*size"):
        read_catalogue(wrong)
    with pytest.raises(BadCatalogue, match="no catalogue"):
        read_catalogue(tmp_path)
