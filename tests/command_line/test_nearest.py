"""Which known name a misspelt one was meant to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from command_line.nearest import nearest
from drafter_client.cli.arguments import drafter_parser
from verifier_server.settings import Settings

FLAGS = [flag for flag in drafter_parser()._option_string_actions if flag.startswith("--")]
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
def test_flags(name: str, meant: str | None) -> None:
    assert nearest(name, FLAGS) == meant


@pytest.mark.parametrize("name", ["URL", "IMAGE", "VERSION", "NAMESPACE", "MODEL_URL", "LOG_LEVEL", "TOKEN", ""])
def test_names_that_are_something_else(name: str) -> None:
    assert nearest(name, SETTINGS) is None


@given(some.sampled_from(FLAGS), some.data())
def test_one_letter_less_is_still_understood(flag: str, data: some.DataObject) -> None:
    at = data.draw(some.integers(2, len(flag) - 1))
    misspelt = flag[:at] + flag[at + 1 :]
    assert nearest(misspelt, FLAGS) is not None and nearest(flag, FLAGS) == flag


def test_nothing_is_near_nothing() -> None:
    assert nearest("--prompt", []) is None
