"""The catalogue of draft models: its entries, which are found for a target, and what is said where none is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import BadCatalogue
from models.hub.catalogue import (
    FURTHER,
    NEEDS,
    Catalogue,
    CatalogueEntry,
    choose_drafter,
    heads_for,
    read_catalogue,
    whole_catalogue,
)
from models.hub.names import parse_name

QWEN_3 = "12be0ee629d69a43e3d7422e5cd8e3572f47c4a642055703cffafa91d845c8d7"
LLAMA = "46bf7723c37a7b59df84b7ce3073cbdf1b22259bddcce923197f6c5acd26df66"
CODER_2_5, QWEN_2_5 = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M", "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M"
LLAMA_1B, QWEN_3_06B = "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "Qwen/Qwen3-0.6B-GGUF:Q8_0"
QWEN_3_5, GEMMA_3 = "unsloth/Qwen3.5-0.8B-GGUF:Q4_K_M", "ggml-org/gemma-3-270m-it-GGUF:Q8_0"
GEMMA_4 = "unsloth/gemma-4-E2B-it-GGUF:Q4_K_M"
MISTRAL = "bartowski/alamios_Mistral-Small-3.1-DRAFT-0.5B-GGUF:Q4_K_M"
GLM = "jukofyork/GLM-4.5-DRAFT-0.6B-v3.0-GGUF:Q4_0"
R1_QWEN = "unsloth/DeepSeek-R1-Distill-Qwen-1.5B-GGUF:Q4_K_M"
R1_LLAMA = "unsloth/DeepSeek-R1-Distill-Llama-8B-GGUF:Q4_K_M"


def test_each_entry_can_be_pulled_and_found() -> None:
    known = read_catalogue()
    names = [each.name for each in known.drafter]
    assert len(set(names)) == len(names) and known.undrafted
    for entry in known.drafter:
        assert parse_name(entry.name).tag and 1e8 < entry.bytes < 2e10 and entry.licence
        assert entry.targets and all(each == each.lower() for each in entry.targets)
    assert all(each.family and each.look_for and each.targets for each in known.undrafted)
    hashes = {each.vocabulary: each.targets for each in known.drafter if each.vocabulary}
    assert len(hashes) == 8, "one hash a family: Qwen2.5, 3 and 3.5, Llama 3, Gemma 3 and 4, Mistral Small, gpt-oss"


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("Qwen3.6-27B-Q4_K_M", ["unsloth/Qwen3.6-27B-MTP-GGUF"]),
        ("Qwen_Qwen3.6-35B-A3B-UD-Q4_K_XL", ["unsloth/Qwen3.6-35B-A3B-MTP-GGUF"]),
        ("qwen3.8-27b", ["unsloth/Qwen3.8-27B-GGUF"]),
        ("Qwen3-8B-Q4_K_M", []),
    ],
)
def test_repositories_with_a_target_and_its_head(target: str, names: list[str]) -> None:
    assert [each.name for each in heads_for(target)] == names
    assert all(parse_name(each.name).tag is None and each.kind == "mtp" for each in read_catalogue().head)


def test_a_users_own_catalogue_names_heads_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.toml"
    lines = ["[[head]]", 'name = "u/mine"', 'kind = "eagle3"', "own_file = true", 'targets = ["qwen3.6-*"]']
    own.write_text("\n".join(lines))
    monkeypatch.setenv(FURTHER, str(own))
    assert [each.name for each in heads_for("Qwen3.6-27B")] == ["u/mine", "unsloth/Qwen3.6-27B-MTP-GGUF"]
    own.write_text("\n".join(lines).replace("eagle3", "medusa"))
    with pytest.raises(BadCatalogue, match=r"head 1: kind: .*choose one of mtp, eagle3, dflash, dspark"):
        heads_for("Qwen3.6-27B")


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("qwen2.5-coder-7b-instruct-q4_k_m", CODER_2_5),
        ("Qwen2.5-Coder-32B-Instruct-Q8_0-00001-of-00005", CODER_2_5),
        ("Qwen2.5-7B-Instruct-Q4_K_M", QWEN_2_5),
        ("Qwen_Qwen2.5-VL-72B-Instruct-Q4_0", QWEN_2_5),
        ("qwen2.5-coder-0.5b-instruct-q8_0", None),
        ("Qwen3-8B-Q4_K_M", QWEN_3_06B),
        ("Qwen_Qwen3-32B-Q4_K_M", QWEN_3_06B),
        ("Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL", QWEN_3_06B),
        ("Qwen3-Next-80B-A3B-Instruct-Q4_K_M", QWEN_3_06B),
        ("Qwen3-0.6B-Q8_0", None),
        ("Qwen3.5-9B-Q4_K_M", QWEN_3_5),
        ("Qwen3.5-122B-A10B-UD-Q4_K_XL-00001-of-00003", QWEN_3_5),
        ("Qwen3.5-0.8B-UD-Q4_K_XL", None),
        ("Qwen3.6-27B-Q4_K_M", QWEN_3_5),
        ("Qwen_Qwen3.6-35B-A3B-Q4_K_M", QWEN_3_5),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M", LLAMA_1B),
        ("Llama-3.2-3B-Instruct-Q8_0", LLAMA_1B),
        ("Llama-3.3-70B-Instruct-Q4_K_M", LLAMA_1B),
        ("meta-llama_Llama-3.1-8B-Instruct-Q4_K_M", LLAMA_1B),
        ("Meta-Llama-3-8B-Instruct-Q4_K_M", LLAMA_1B),
        ("llama-2-7b-chat.Q4_K_M", None),
        ("google_gemma-3-27b-it-Q4_K_M", GEMMA_3),
        ("gemma-3-12b-it-qat-q4_0", GEMMA_3),
        ("gemma-3-270m-it-Q8_0", None),
        ("gemma-2-9b-it-Q4_K_M", None),
        ("gemma-4-31B-it-Q4_K_M", GEMMA_4),
        ("google_gemma-4-26B-A4B-it-Q4_K_M", GEMMA_4),
        ("gemma-4-E2B-it-Q4_K_M", None),
        ("Mistral-Small-24B-Instruct-2501-Q4_K_M", MISTRAL),
        ("mistralai_Mistral-Small-3.2-24B-Instruct-2506-Q4_K_M", MISTRAL),
        ("Devstral-Small-2507-Q4_K_M", MISTRAL),
        ("Mistral-Small-Instruct-2409-Q4_K_M", None),
        ("gpt-oss-120b-mxfp4-00001-of-00003", "ggml-org/gpt-oss-20b-GGUF:MXFP4"),
        ("openai_gpt-oss-20b-MXFP4", None),
        ("DeepSeek-R1-Distill-Qwen-32B-Q4_K_M", R1_QWEN),
        ("DeepSeek-R1-Distill-Qwen-1.5B-Q8_0", None),
        ("DeepSeek-R1-Distill-Llama-70B-Q4_K_M", R1_LLAMA),
        ("DeepSeek-R1-Distill-Llama-8B-Q4_K_M", None),
        ("phi-4-Q4_K_M", None),
        ("microsoft_Phi-4-mini-instruct-Q4_K_M", None),
        ("GLM-4.5-Air-UD-Q4_K_XL-00001-of-00002", GLM),
        ("zai-org_GLM-4.6-Q4_K_M", GLM),
        ("GLM-4-32B-0414-Q4_K_M", GLM),
        ("GLM-4.7-Flash-Q4_K_M", None),
        ("GLM-4.6V-Flash-Q4_K_M", None),
    ],
)
def test_the_best_draft_model_for_a_name(target: str, found: str | None) -> None:
    choice = choose_drafter(target, None)
    assert next((each.name for each in choice.entries), None) == found
    assert bool(choice.advice) == (found is None)


@pytest.mark.parametrize(
    ("target", "vocabulary", "found"),
    [
        ("a-fine-tune", LLAMA, LLAMA_1B),
        ("llama-3.2-1b-instruct-q8_0", LLAMA, None),  # it would draft for itself
        ("another-fine-tune", QWEN_3, QWEN_3_06B),
        ("qwen3-with-another-vocabulary", "f" * 64, None),
        ("llama-3-with-another-vocabulary", "f" * 64, None),
        ("DeepSeek-R1-Distill-Qwen-7B", "f" * 64, R1_QWEN),  # whose hash is not known
    ],
)
def test_a_known_vocabulary_decides_before_the_name(target: str, vocabulary: str, found: str | None) -> None:
    assert next((each.name for each in choose_drafter(target, vocabulary).entries), None) == found


def test_models_made_for_a_name_come_before_those_of_its_vocabulary() -> None:
    [hash_of_all] = {each.vocabulary for each in read_catalogue().drafter if each.name in (CODER_2_5, QWEN_2_5)}
    names = [each.name for each in choose_drafter("Qwen2.5-7B-Instruct", hash_of_all).entries]
    assert names[0] == QWEN_2_5 and "1.5B-Instruct" in names[1] and CODER_2_5 in names[2:]


def _entry(name: str, size: int, licence: str = "MIT") -> CatalogueEntry:
    return CatalogueEntry(name=f"u/{name}:Q4", vocabulary="", targets=["t*"], bytes=size, licence=licence)


def _names(*entries: CatalogueEntry, free: float | None = None) -> list[str]:
    found = choose_drafter("t", None, free, Catalogue(drafter=list(entries))).entries
    return [each.name[2:-3] for each in found]


def test_the_smallest_that_fits_comes_first_and_of_one_size_the_open_licence() -> None:
    small, terms = _entry("small", 400), _entry("terms", 398, "Some Terms of Use")
    large, huge = _entry("large", 1000, "Apache-2.0"), _entry("huge", 9000)
    assert _names(huge, terms, large, small) == ["small", "terms", "large", "huge"]
    assert _names(huge, terms, large, small, free=1500) == ["small", "terms", "large"]


@given(st.lists(st.integers(1, 10**10), min_size=1, unique=True), st.integers(0, 10**11))
def test_what_does_not_fit_is_never_chosen(sizes: list[int], free: int) -> None:
    choice = choose_drafter("t", None, free, Catalogue(drafter=[_entry(f"m{each}", each) for each in sizes]))
    assert {each.bytes for each in choice.entries} == {each for each in sizes if NEEDS * each <= free}
    assert bool(choice.entries) != bool(choice.advice)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("phi-4-Q8_0", "no draft model is known for Phi-4: rdsm/"),
        ("Phi-4-mini-instruct", "for Phi-4-mini: no smaller model"),
        ("gpt-oss-20b", "no draft model is known for gpt-oss 20B"),
        ("mystery-7b", "no draft model is known for mystery-7b: look for a smaller model of its family"),
    ],
)
def test_a_family_without_a_draft_model_says_what_to_look_for(target: str, said: str) -> None:
    assert said in choose_drafter(target, None).advice


def test_memory_that_is_short_is_told_with_the_smallest_model() -> None:
    advice = choose_drafter("Llama-3.3-70B", None, 5e8).advice
    assert advice.startswith(LLAMA_1B) and "it needs 1.22 GB of memory, and 0.50 GB are free" in advice


def test_entries_of_the_user_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[undrafted]]\nfamily = "Mine"\ntargets = ["mine*"]\nlook_for = "none"\n')
    monkeypatch.setenv(FURTHER, str(own))
    assert whole_catalogue().undrafted[0].family == "Mine"
    assert choose_drafter("mine-8b", None).advice == "no draft model is known for Mine: none"


RIGHT = {"name": '"u/m:Q8_0"', "vocabulary": '""', "targets": '["m-*"]', "bytes": "5", "licence": '"MIT"'}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"size": "5"}, "size: Extra inputs"),
        ({"name": '"m"'}, "name: .*'m' is not the name of a model"),
        ({"vocabulary": '"abc"'}, "vocabulary: String should match"),
        ({"targets": "[1]"}, "targets: Input should be a valid string"),
        ({"targets": "1"}, "targets: Input should be a valid list"),
        ({"bytes": "0"}, "bytes: Input should be greater than 0"),
        ({"bytes": '"5"'}, "bytes: Input should be a valid integer"),
        ({"licence": "1"}, "licence: Input should be a valid string"),
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
    with pytest.raises(BadCatalogue, match="drafter 1: vocabulary: Field required"):
        read_catalogue(lacks)
    lacks.write_text('[drafter]\nname = "u/m"\n')
    with pytest.raises(BadCatalogue, match=r"write \[\[drafter\]\] above each"):
        read_catalogue(lacks)
    with pytest.raises(BadCatalogue, match="no catalogue"):
        read_catalogue(tmp_path)
