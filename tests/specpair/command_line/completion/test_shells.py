"""What bash, zsh and fish offer at the end of a line of `drafter`, by the scripts that it prints."""

from collections.abc import Iterator

import pytest

from drafter_client.cli.program import parsers
from specpair.command_line.completion.accepted import accepted
from specpair.command_line.completion.command import SHELLS
from tests.specpair.command_line.completion.shells import PROGRAM, Offered, offered_by

COMMANDS = {each.path: each for each in accepted(parsers())}
MODES = {"remote", "fused", "target", "auto"}


@pytest.fixture(scope="module", params=list(SHELLS))
def offered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offered]:
    folder = tmp_path_factory.mktemp("shell")
    for name in ("runs", "notes"):
        (folder / name).mkdir()
    for name in ("run.jsonl", "with space.txt"):
        (folder / name).touch()
    yield from offered_by(request.param, SHELLS[request.param](PROGRAM, list(COMMANDS.values())), folder)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("drafter ", set(COMMANDS["drafter"].commands)),
        ("drafter co", {"compare", "completion"}),
        ("drafter bench ", {"report", "compare"}),
        ("drafter --mode ", MODES),
        ("drafter chat --cache-salt no --mode ", MODES),
        ("drafter chat --no-mar", {"--no-markdown"}),
        ("drafter chat --sources --strategy p", {"probabilistic"}),
        ("drafter models ", {"list", "pull", "remove", "show", "check", "suggest"}),
        ("drafter models --verifier http://127.0.0.1:8000 s", {"show", "suggest"}),
        ("drafter models --verifier http://127.0.0.1:8000 show --js", {"--json"}),
        ("drafter key --sessions 3 ", {"new", "list", "revoke"}),
        ("drafter solo ", {"target", "draft", "server"}),
    ],
)
def test_commands_flags_and_choices(offered: Offered, line: str, words: set[str]) -> None:
    assert set(offered(line)) == words


@pytest.mark.parametrize("line", ["drafter --prompt-file ru", "drafter chat --json-schema ru"])
def test_files_and_folders_where_a_file_is_expected(offered: Offered, line: str) -> None:
    assert {each.rstrip("/") for each in offered(line)} == {"runs", "run.jsonl"}


@pytest.mark.parametrize("line", ["drafter report ", "drafter --profile ", "drafter bench compare runs --output "])
def test_folders_where_one_is_expected(offered: Offered, line: str) -> None:
    assert {each.rstrip("/") for each in offered(line)} == {"runs", "notes"}


def test_a_value_behind_an_equals_sign(offered: Offered) -> None:
    assert [each.rpartition("=")[2] for each in offered("drafter --mode=f")] == ["fused"]


def test_a_name_with_a_space_stays_one_word(offered: Offered) -> None:
    assert offered("drafter --prompt-file wi") == ["with space.txt"]


def test_all_flags_of_a_command(offered: Offered) -> None:
    flags = {name for flag in COMMANDS["drafter serve"].flags for name in flag.names if name.startswith("--")}
    assert set(offered("drafter serve --")) == flags


@pytest.mark.parametrize("line", ["drafter --prompt ", "drafter chat --seed ", "drafter models pull "])
def test_nothing_for_a_text(offered: Offered, line: str) -> None:
    assert [each for each in offered(line) if not each.startswith("-")] == []
