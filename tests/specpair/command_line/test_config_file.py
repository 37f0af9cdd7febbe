"""`specpair.toml`: where it is looked for, how values are read, and errors that name file, table and key."""

from collections.abc import Callable
from pathlib import Path

import pytest

from specpair.command_line.given_values import SettingsError
from specpair.command_line.setting_sources import ConfigFile, read

KEYS, PATHS = ("rows", "api_key", "model", "mmap", "session_ttl"), ("model",)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file with the given text or bytes, by default the one of the working folder, and returns its path."""
    monkeypatch.chdir(tmp_path)

    def file(content: str | bytes, name: str = "specpair.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o644)
        return path

    return file


def _values(path: Path | None = None, **environment: str) -> dict[str, str]:
    found = read("verifier", KEYS, PATHS, path, environment)
    return {} if found is None else found.values


def _error(content: str | bytes, write: Write) -> str:
    path = write(content)
    with pytest.raises(SettingsError) as caught:
        _values()
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message.removeprefix(str(path))


def test_named_file_comes_before_that_of_the_variable_and_that_before_the_working_folder_s(write: Write) -> None:
    assert read("verifier", KEYS, PATHS, None, {}) is None
    write("[verifier]\nrows = 1")
    two, three = write("[verifier]\nrows = 2", "two.toml"), write("[verifier]\nrows = 3", "three.toml")
    assert _values() == {"rows": "1"}
    assert _values(SPECPAIR_CONFIG="") == {"rows": "1"}
    assert _values(SPECPAIR_CONFIG=str(two)) == {"rows": "2"}
    assert _values(Path("three.toml"), SPECPAIR_CONFIG=str(two)) == {"rows": "3"}
    assert read("verifier", KEYS, PATHS, Path("three.toml"), {}) == ConfigFile(three, {"rows": "3"}, public=True)


def test_file_that_was_named_must_exist(write: Write) -> None:
    path = write("").with_name("missing.toml")
    with pytest.raises(SettingsError) as by_flag:
        _values(Path("missing.toml"))
    assert str(by_flag.value) == f"--config: no such file: {path}"
    with pytest.raises(SettingsError) as by_variable:
        _values(SPECPAIR_CONFIG="missing.toml")
    assert str(by_variable.value) == f"SPECPAIR_CONFIG: no such file: {path}"


def test_values_are_what_a_variable_would_have(write: Write) -> None:
    write('[verifier]\nrows = 1_0\nmmap = false\nsession_ttl = 1.5\napi_key = "k"\n[drafter]\nanything = []')
    assert _values() == {"rows": "10", "mmap": "false", "session_ttl": "1.5", "api_key": "k"}


def test_byte_order_mark_is_no_text(write: Write) -> None:
    assert _values(write("\ufeff[verifier]\r\nrows = 3\r\n".encode())) == {"rows": "3"}


def test_relative_path_is_relative_to_the_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for given, meant in (
        ("m.gguf", str(tmp_path / "there" / "m.gguf")),
        ("../m.gguf", str(tmp_path / "there" / "../m.gguf")),
        ("/m.gguf", "/m.gguf"),
        ("~/m.gguf", "/home/me/m.gguf"),
        ("", ""),
    ):
        path = write(f'[verifier]\nmodel = "{given}"', "there/settings.toml")
        assert _values(path) == {"model": meant}


def test_each_path_of_a_list_is_relative_to_the_file(write: Write, tmp_path: Path) -> None:
    path = write('[verifier]\nfiles = "src,/notes"', "there/settings.toml")
    found = read("verifier", ["files"], (), path, {}, ["files"])
    assert found is not None and found.values == {"files": f"{tmp_path / 'there' / 'src'},/notes"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("rows = 3", ": rows: a setting belongs in a table, [verifier], [drafter] or [router]"),
        ("verifier = 3", ": verifier: a setting belongs in a table, [verifier], [drafter] or [router]"),
        ("[[verifier]]\nrows = 3", ": verifier: a setting belongs in a table, [verifier], [drafter] or [router]"),
        ("[verifer]\nrows = 3", " [verifer]: no such table; did you mean [verifier]?"),
        ("[server]\nrows = 3", " [server]: no such table; choose one of [verifier], [drafter], [router]"),
        ("[verifier]\nrowz = 3", " [verifier] rowz: no such setting; did you mean rows?"),
        ("[verifier]\nkey = 3", " [verifier] key: no such setting; did you mean api_key?"),
        ("[verifier]\nzebra = 3", " [verifier] zebra: no such setting; 'verifier --help' lists them"),
        ("[verifier]\nrows = [3]", ' [verifier] rows: several values are written as text, with commas: "1,8,32"'),
        ("[verifier]\nrows.most = 3", " [verifier] rows: must be text, a number, true or false"),
        ("[verifier]\nrows = 2026-11-23", " [verifier] rows: must be text, a number, true or false"),
        (b"[verifier]\nmodel = '\xff'", ": the file is not UTF-8 text"),
    ],
)
def test_error_names_file_table_and_key(write: Write, content: str | bytes, complaint: str) -> None:
    assert _error(content, write) == complaint


def test_error_never_holds_a_secret(write: Write) -> None:
    for content in ('api_key = ["sesame"]', 'api_key = "sesame', "api_key = sesame", "api_key = { a = 'sesame' }"):
        assert "sesame" not in _error(f"[verifier]\n{content}", write)


def test_folder_in_place_of_the_file_is_refused(write: Write, tmp_path: Path) -> None:
    write("", "other/x")
    with pytest.raises(SettingsError, match="other: the file cannot be read: Is a directory"):
        _values(tmp_path / "other")


@pytest.mark.parametrize(("mode", "public"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_file_that_everybody_can_read_is_told_apart(write: Write, mode: int, public: bool) -> None:
    write("[verifier]").chmod(mode)
    found = read("verifier", KEYS, PATHS, None, {})
    assert found is not None and found.public is public
