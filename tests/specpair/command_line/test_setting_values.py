"""Values as users write them: numbers, paths, switches, misspelt names."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.cli.commands import compare_options, drafter_options, drafter_parser, serve_options, solo_options
from drafter_client.cli.flags import keys_file
from specpair.command_line.setting_values import advice, nearest
from specpair.command_line.table import columns_in
from specpair.http_service.keys import key_command
from verifier_server.settings import SettingsError, from_flags

FLAGS = [flag for action in drafter_parser().actions() for flag in action.option_strings if flag.startswith("--")]


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


def test_an_error_advises_the_nearest_name_or_lists_all() -> None:
    assert advice("key", ["keys", "name"]) == "; did you mean keys?"
    assert advice("key", ["keys", "name"], shown="--{}".format) == "; did you mean --keys?"
    assert advice("zebra", ["keys", "name"], shown="[{}]".format) == "; choose one of [keys], [name]"
    assert advice("zebra", ["keys", "name"], listed=False) == ""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_in_flags_of_the_drafter(home: Path) -> None:
    written = ["--draft-model=~/d", "--prompt-file=~/p", "--output=~/o", "--profile=~/r", "--compile-cache=~/c"]
    options = drafter_options(written)
    found = (options.draft_model, options.prompt_file, options.output, options.profile, options.compile_cache)
    assert found == tuple(home / name for name in "dporc")
    assert drafter_options(["--prediction-file", "~/x"]).prediction_file == home / "x"
    assert solo_options(["--model=~/x"]).model == home / "x"
    assert compare_options(["--prompt-file=~/x"]).prompt_file == [home / "x"]


def test_in_variables_and_in_the_name_of_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "mine.toml").write_text("[verifier]\nrows = 3\n[drafter]\ntexts = 3\n")
    assert serve_options(["--config=~/mine.toml"]).texts == 3
    settings, _ = from_flags(["--config=~/mine.toml"], {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": "~/m"})
    assert (settings.slots, settings.model) == (3, home / "m")
    assert from_flags([], {"SPECPAIR_CONFIG": "~/mine.toml", "VERIFIER_BACKEND": "scripted"})[0].slots == 3
    assert keys_file(None, {"DRAFTER_KEYS_FILE": "~/k"}) == home / "k"
    monkeypatch.setenv("DRAFTER_DRAFT_MODEL", "~/d")
    assert drafter_options(["--prompt", "x"]).draft_model == home / "d"


SAID: list[tuple[list[str], bool]] = [
    (["--{}"], True),
    (["--no-{}"], False),
    *((["--{}", word], True) for word in ("yes", "true", "on", "1", "YES")),
    *((["--{}", word], False) for word in ("no", "false", "off", "0", "No")),
    (["--{}=yes"], True),
    (["--{}=no"], False),
    (["--no-{}=yes"], False),
    (["--no-{}", "no"], True),
    (["--no-{}", "--{}"], True),
]


def _of(flags: list[str], name: str) -> list[str]:
    return [each.format(name) for each in flags]


@pytest.mark.parametrize(("flags", "said"), SAID, ids=[" ".join(flags) for flags, _ in SAID])
def test_all_programs_take_each_form(flags: list[str], said: bool) -> None:
    settings, _ = from_flags([*_of(flags, "mmap"), *_of(flags, "access-log"), "--backend", "scripted"], {})
    assert (settings.mmap, settings.access_log) == (said, said)
    options = drafter_options([*_of(flags, "lookup"), *_of(flags, "json"), *_of(flags, "stream"), "--prompt", "x"])
    assert (options.lookup, options.json, options.stream) == (said, said, said)
    assert serve_options(_of(flags, "access-log")).access_log is said
    assert key_command.parser("drafter").parse(["new", "x", *_of(flags, "admin")]).admin is said


def test_a_word_after_the_double_dash_is_none_of_a_switch(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        drafter_options(["--json", "--", "yes"])
    assert "'yes'" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["maybe", "2", ""])
def test_another_word_is_refused(capsys: pytest.CaptureFixture[str], word: str) -> None:
    for parse in (drafter_options, lambda flags: from_flags(flags, {})):
        name = "--lookup" if parse is drafter_options else "--mmap"
        with pytest.raises((SystemExit, SettingsError)):
            parse([f"{name}={word}"])
        assert f"{name}: {word!r} is neither yes nor no" in capsys.readouterr().err


@given(st.lists(st.integers(1, 30), min_size=2, max_size=20), st.integers(1, 120))
def test_columns_stand_once_each_behind_the_first(widths: list[int], room: int) -> None:
    parts = columns_in(widths, room)
    assert [column for part in parts for column in part[1:]] == [*range(1, len(widths))]
    assert all(part[0] == 0 for part in parts)
    assert all(len(part) == 2 or 1 + sum(widths[column] + 2 for column in part) <= room for part in parts)
    for part, following in pairwise(parts):
        assert 1 + sum(widths[column] + 2 for column in (*part, following[1])) > room
