"""Names of models: what a user may write, and what an error says of the rest."""

import pytest

from models.errors import BadName
from models.hub.names import ModelName, parse_name


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
