"""The known name that a misspelt name means is found, and what an error advises."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from drafter_client.cli.commands import drafter_parser
from specpair.command_line.given_values import advice, nearest
from verifier_server.settings import Settings

FLAGS = [flag for action in drafter_parser().actions() for flag in action.option_strings if flag.startswith("--")]
SETTINGS = [name.upper() for name in Settings.model_fields]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("--promt", "--prompt"),
        ("--pormpt", "--prompt"),
        ("--max_tokens", "--max-tokens"),
        ("--maxtokens", "--max-tokens"),
        ("--Temperature", "--temperature"),
        ("--temp", "--temperature"),
        ("--key", "--api-key"),
        ("--verfier", "--verifier"),
        ("--sed", "--seed"),
        ("-x", None),
        ("--frobnicate", None),
        ("--url", None),
        ("", None),
    ],
)
def test_nearest_finds_the_intended_flag(name: str, meant: str | None) -> None:
    assert nearest(name, FLAGS) == meant


@pytest.mark.parametrize("name", ["ADDRESS", "IMAGE", "VERSION", "NAMESPACE", "MODEL_URL", "LOG_LEVEL", "TOKEN", ""])
def test_unrelated_names_have_no_nearest(name: str) -> None:
    assert nearest(name, SETTINGS) is None


@given(some.sampled_from(FLAGS), some.data())
def test_one_missing_letter_is_tolerated(flag: str, data: some.DataObject) -> None:
    at = data.draw(some.integers(2, len(flag) - 1))
    misspelt = flag[:at] + flag[at + 1 :]
    assert nearest(misspelt, FLAGS) is not None and nearest(flag, FLAGS) == flag


def test_nearest_of_no_names_is_none() -> None:
    assert nearest("--prompt", []) is None


def test_of_names_that_hold_the_word_the_shortest_is_meant() -> None:
    assert nearest("KEY", ["OTHER_API_KEY", "API_KEY"]) == "API_KEY"


def test_an_error_advises_the_nearest_name_or_lists_all() -> None:
    assert advice("key", ["keys", "name"]) == "; did you mean keys?"
    assert advice("key", ["keys", "name"], shown="--{}".format) == "; did you mean --keys?"
    assert advice("zebra", ["keys", "name"], shown="[{}]".format) == "; choose one of [keys], [name]"
    assert advice("zebra", ["keys", "name"], listed=False) == ""
