"""Names of models, which files they mean, and the catalogue of draft models that are known to work."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import BadCatalogue, BadName, NoMatch
from models.hub.names import ModelName, choose, choose_folder, drafters_for, parse_name, read_catalogue, tags


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", ModelName("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF")),
        (" org_1/a.b-c:Q4_K_M ", ModelName("org_1/a.b-c", "Q4_K_M")),
        ("u/r:UD-Q4_K_XL", ModelName("u/r", "UD-Q4_K_XL")),
    ],
)
def test_a_name_is_read_and_written(text: str, name: ModelName) -> None:
    assert parse_name(text) == name and str(name) == text.strip()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "write user/repo"),
        ("model.gguf", "write user/repo"),
        ("https://x/u/r", "write user/repo"),
        ("/r", "its user is ''"),
        ("u/", "its repository is ''"),
        ("../r", "its user is '..'"),
        ("u/..", "its repository is '..'"),
        ("u/a--b", "its repository is 'a--b'"),
        ("u/a b", "its repository is 'a b'"),
        ("u/" + "a" * 97, "96 at most"),
        ("u/r:", "its tag is ''"),
        ("u/r:a/b", "its tag is 'a/b'"),
        ("u/r:.*", "its tag is '.*'"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(text: str, wrong: str) -> None:
    with pytest.raises(BadName) as caught:
        parse_name(text)
    assert wrong in str(caught.value) and repr(text) in str(caught.value)


SPLIT = [f"BF16/Toy-BF16-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
REPOSITORY = [
    ".gitattributes",
    *SPLIT,
    "README.md",
    "Toy-Q8_0.gguf",
    "Toy-IQ4_XS.gguf",
    "Toy-Q4_K_M.gguf",
    "Toy-UD-Q4_K_XL.gguf",
    "imatrix-Q4_K_M.gguf",
    "mmproj-F16.gguf",
    "mtp-Toy-Q4_K_M.gguf",
]


@pytest.mark.parametrize(
    ("tag", "chosen"),
    [
        (None, ["Toy-Q4_K_M.gguf"]),
        ("Q8_0", ["Toy-Q8_0.gguf"]),
        ("q8_0", ["Toy-Q8_0.gguf"]),
        ("BF16", SPLIT),
        ("UD-Q4_K_XL", ["Toy-UD-Q4_K_XL.gguf"]),
    ],
)
def test_a_tag_chooses_its_file_with_all_parts(tag: str | None, chosen: list[str]) -> None:
    assert choose(ModelName("u/toy", tag), REPOSITORY) == chosen


@pytest.mark.parametrize(
    ("paths", "chosen"),
    [
        (["a-Q2_K.gguf", "a-Q8_0.gguf"], ["a-Q8_0.gguf"]),
        (["a-Q2_K.gguf", "a-Q3_K_S.gguf"], ["a-Q2_K.gguf"]),
        (["a.gguf"], ["a.gguf"]),
        (["mmproj-a-Q4_K_M.gguf", "a-f16.GGUF"], ["a-f16.GGUF"]),
    ],
)
def test_a_name_without_a_tag_has_a_usual_one_or_the_first(paths: list[str], chosen: list[str]) -> None:
    assert choose(ModelName("u/toy"), paths) == chosen


@pytest.mark.parametrize("tag", ["F16", "Q4_K", "Q5_K_M", "Q4.K.M"])
def test_no_other_model_stands_in_for_a_tag_and_those_there_are_listed(tag: str) -> None:
    paths = [path for path in REPOSITORY if "BF16" not in path]
    with pytest.raises(NoMatch) as caught:
        choose(ModelName("u/toy", tag), paths)
    assert str(caught.value) == f"u/toy has no model {tag}, but these: Q8_0, IQ4_XS, Q4_K_M, UD-Q4_K_XL"
    assert caught.value.tags == ("Q8_0", "IQ4_XS", "Q4_K_M", "UD-Q4_K_XL")


def test_a_repository_without_models_and_a_split_one_without_a_part_are_told() -> None:
    with pytest.raises(NoMatch, match="no GGUF file of a model"):
        choose(ModelName("u/toy"), ["config.json", "mmproj-F16.gguf"])
    folder = ["config.json", "model.safetensors", "mmproj-F16.gguf"]
    with pytest.raises(NoMatch, match=r"has a folder of safetensors, and no GGUF file: .* \(--backend torch\)"):
        choose(ModelName("u/toy"), folder)
    with pytest.raises(NoMatch, match="no GGUF file: leave :Q8_0 out"):
        choose(ModelName("u/toy", "Q8_0"), folder)
    with pytest.raises(NoMatch, match=r"lacks BF16/Toy-BF16-00002-of-00003.gguf: "):
        choose(ModelName("u/toy", "bf16"), [SPLIT[0], SPLIT[2]])


def test_a_folder_of_safetensors_is_chosen_where_there_is_one() -> None:
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    others = ["generation_config.json", "merges.txt", "tokenizer.json", "model.safetensors.index.json"]
    more = ["README.md", "consolidated.safetensors", "original/config.json", "original/model.safetensors", "a.gguf"]
    template = "additional_chat_templates/tool_use.jinja"
    paths = [*more, *others, "config.json", template, *shards]
    assert choose_folder(ModelName("u/r"), paths) == ["config.json", *others, template, *shards]
    assert choose_folder(ModelName("u/r", "Q8_0"), paths) == choose_folder(ModelName("u/r"), REPOSITORY) == []


@given(st.permutations(REPOSITORY))
def test_each_tag_that_is_listed_names_a_model(paths: list[str]) -> None:
    for tag in tags(paths):
        assert all(path in REPOSITORY for path in choose(ModelName("u/toy", tag), paths))


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
