"""Names of models, and which files they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import BadName, NoMatch
from models.hub.names import ModelName, choose, choose_folder, choose_head, head_kind, parse_name, tags


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


KINDS = ("mtp", "dflash", "eagle3", "dspark")
FLAT = [  # the layouts are those of llama.cpp's own test of -hf
    *("README.md", "model-BF16.gguf", "model-Q4_K_M.gguf", "model-Q8_0.gguf", "mmproj-model-Q8_0.gguf"),
    *("mtp-model-BF16.gguf", "mtp-model-Q4_0.gguf", "mtp-model-Q8_0.gguf"),
    *("dflash-model-BF16.gguf", "dflash-model-Q8_0.gguf"),
]
FOLDERS = [
    *("model-mtp-BF16.gguf", "model-mtp-Q8_0.gguf"),
    *(f"Q3_K_M/model-Q3_K_M-0000{number}-of-00003.gguf" for number in (1, 2, 3)),
    *("Q8_0/model-Q8_0.gguf", "Q8_0/mtp-model-F16.gguf"),
]
EACH_KIND = ["model-Q8_0.gguf", *(f"{kind}-model-Q8_0.gguf" for kind in KINDS)]


@pytest.mark.parametrize(
    ("paths", "tag", "found"),
    [
        (FLAT, "Q8_0", {"mtp": "mtp-model-Q8_0.gguf", "dflash": "dflash-model-Q8_0.gguf"}),
        (FLAT, None, {"mtp": "mtp-model-Q4_0.gguf", "dflash": "dflash-model-Q8_0.gguf"}),  # of Q4_K_M
        (FLAT, "bf16", {"mtp": "mtp-model-BF16.gguf", "dflash": "dflash-model-BF16.gguf"}),
        (FLAT, "Q4_0", {"mtp": "mtp-model-Q4_0.gguf", "dflash": "dflash-model-Q8_0.gguf"}),  # has no model of the tag
        (FOLDERS, "Q3_K_M", {"mtp": "model-mtp-Q8_0.gguf"}),
        (FOLDERS, "Q8_0", {"mtp": "Q8_0/mtp-model-F16.gguf"}),  # in the nearest folder
        (EACH_KIND, "Q8_0", {kind: f"{kind}-model-Q8_0.gguf" for kind in KINDS}),
        (["model-UD-Q8_K_XL.gguf", "model-MTP-BF16.gguf"], "Q8_K_XL", {}),
        (["model-Q8_0.gguf", "MTP/mtp-model-Q8_0.gguf"], "Q8_0", {}),  # not above the model
    ],
)
def test_the_head_of_a_model_is_the_one_that_llama_cpp_takes(
    paths: list[str], tag: str | None, found: dict[str, str]
) -> None:
    for at in range(len(paths)):
        turned = [*paths[at:], *paths[:at]]
        chosen = {kind: choose_head(ModelName("u/toy", tag), turned, kind) for kind in KINDS}
        assert {kind: files for kind, files in chosen.items() if files} == {
            kind: [file] for kind, file in found.items()
        }


def test_a_split_head_is_whole_or_none() -> None:
    parts = [f"mtp-toy-Q8_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    assert choose_head(ModelName("u/toy"), ["toy-Q8_0.gguf", *parts]) == parts
    assert choose_head(ModelName("u/toy"), ["toy-Q8_0.gguf", parts[0]]) == []


def test_a_target_with_its_head_in_its_file_is_a_model_by_its_name() -> None:
    paths = ["Toy-MTP-Q8_0.gguf", "Toy-MTP-Q4_K_M.gguf", "mtp-Toy-Q4_K_M.gguf"]
    assert choose(ModelName("u/toy"), paths) == ["Toy-MTP-Q4_K_M.gguf"] and tags(paths) == ["Q8_0", "Q4_K_M"]
    assert [head_kind(path) for path in paths] == [None, None, "mtp"]
