"""Flags that are yes or no: every way to write one means the same, at both ends."""

import pytest

from drafter_client.cli.commands import drafter_options, serve_options
from specpair.http_service.keys import key_command
from verifier_server.settings import SettingsError, from_flags

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
EACH = pytest.mark.parametrize(("flags", "said"), SAID, ids=[" ".join(flags) for flags, _ in SAID])


def _of(flags: list[str], name: str) -> list[str]:
    return [each.format(name) for each in flags]


@EACH
def test_the_verifier_takes_each_form(flags: list[str], said: bool) -> None:
    settings, _ = from_flags([*_of(flags, "mmap"), *_of(flags, "access-log"), "--backend", "scripted"], {})
    assert (settings.mmap, settings.access_log) == (said, said)


@EACH
def test_the_drafter_takes_each_form(flags: list[str], said: bool) -> None:
    options = drafter_options([*_of(flags, "lookup"), *_of(flags, "json"), *_of(flags, "stream"), "--prompt", "x"])
    assert (options.lookup, options.json, options.stream) == (said, said, said)
    assert serve_options(_of(flags, "access-log")).access_log is said
    assert key_command.parser("drafter").parse(["new", "x", *_of(flags, "admin")]).admin is said


def test_a_switch_that_is_not_given_leaves_the_default_or_the_variable() -> None:
    assert from_flags(["--backend", "scripted"], {})[0].mmap
    assert not from_flags(["--backend", "scripted"], {"VERIFIER_MMAP": "no"})[0].mmap
    assert from_flags(["--backend", "scripted", "--mmap"], {"VERIFIER_MMAP": "no"})[0].mmap


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


def test_another_word_in_a_variable_is_refused() -> None:
    with pytest.raises(SettingsError, match="VERIFIER_MMAP: Input should be a valid boolean"):
        from_flags(["--backend", "scripted"], {"VERIFIER_MMAP": "perhaps"})
