"""The layers of settings: flag over variable over `specpair.toml` over default, and errors that name the place."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import SecretStr, model_validator

from specpair.command_line.layers import Layer, LayeredSettings, Names, lasting_layers, settings_model, settings_table
from specpair.command_line.parser import flag
from specpair.command_line.setting_sources import ConfigFile, read
from specpair.command_line.setting_values import SettingsError
from specpair.options.option import option, settings_of

KINDS: tuple[tuple[Literal["flag", "variable", "key"], Callable[[str], str]], ...] = (
    ("flag", flag),
    ("variable", lambda name: f"END_{name.upper()}"),
    ("key", lambda name: f"/etc/specpair.toml [end] {name}"),
)


@dataclass
class Options:
    rows: int | None = option(None, "rows", auto=True, ge=1, group="all")
    device: str | None = option(None, "device", group="all")
    model: Path | None = option(None, "model", group="all")
    mmap: bool = option(True, "mmap", group="all")
    api_key: SecretStr | None = option(None, "key", group="all")


class Example(settings_model(LayeredSettings, settings_of(Options, "end"))):  # type: ignore[misc]
    @model_validator(mode="after")
    def _check(self) -> "Example":
        if self.device == "none":
            raise ValueError("device: there is no such device")
        return self

    @classmethod
    def usual_key(cls, name: str) -> str:
        return f"<{name}>"


def layers(*values: dict[str, Any]) -> list[Layer]:
    return [Layer(kind, each, key) for (kind, key), each in zip(KINDS, values, strict=False)]


VALUES = some.fixed_dictionaries(
    {},
    optional={
        "rows": some.sampled_from(["1", "2", "auto"]),
        "device": some.sampled_from(["cpu", "cuda", ""]),
        "model": some.sampled_from(["a", "b"]),
        "mmap": some.sampled_from(["yes", "no", "1", "0", "true", "false"]),
        "api_key": some.sampled_from(["k1", "k2"]),
    },
)


@given(some.tuples(VALUES, VALUES, VALUES))
def test_the_first_layer_that_has_a_value_gives_it(values: tuple[dict[str, str], ...]) -> None:
    settings = Example.from_layers(layers(*values))
    for name in Example.model_fields:
        having = [at for at in range(3) if name in values[at]]
        if not having:
            assert (getattr(settings, name), settings.origin(name)) == (getattr(Example(), name), "default")
            assert settings.key(name) == f"<{name}>" and not settings.lasting(name)
            continue
        kind, key = KINDS[having[0]]
        alone = Example.model_validate({name: values[having[0]][name]})
        assert getattr(settings, name) == getattr(alone, name)
        assert settings.key(name) == key(name)
        assert settings.origin(name) == (key(name) if kind == "key" else f"{kind} {key(name)}")
        assert settings.lasting(name) is (kind != "flag")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (({"rows": "0"},), "--rows: must be at least 1, got 0"),
        (({}, {"rows": "x"}), "END_ROWS: 'x' is neither auto nor a whole number"),
        (({}, {}, {"mmap": "perhaps"}), "/etc/specpair.toml [end] mmap: Input should be a valid boolean, unable to"),
        (({}, {}, {"device": "none"}), "/etc/specpair.toml [end] device: there is no such device"),
        (({"device": "none"}, {}, {"device": "cpu"}), "--device: there is no such device"),
    ],
)
def test_error_names_the_setting_as_it_was_given(values: tuple[dict[str, str], ...], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Example.from_layers(layers(*values))
    assert str(caught.value).startswith(message)


def test_secret_is_never_shown(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDANTIC_SETTINGS_DEBUG", "1")
    caplog.set_level(logging.DEBUG)
    settings = Example.from_layers(layers({}, {}, {"api_key": "sesame", "rows": "3"}))
    assert settings.api_key == SecretStr("sesame") and Example.secrets() == {"api_key"}
    shown = settings_table(["rows", "api_key"], [settings])
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["rows", "3", "/etc/specpair.toml", "[end]", "rows"],
        ["api_key", "(set)", "/etc/specpair.toml", "[end]", "api_key"],
    ]
    with pytest.raises(SettingsError) as caught:
        Example.from_layers(layers({"device": "none"}, {"api_key": "sesame"}))
    for text in (repr(settings), str(settings), settings.model_dump_json(), str(caught.value), shown, caplog.text):
        assert "sesame" not in text
    assert "sesame" not in str(caught.value.__context__), "the error of pydantic, which a traceback could show"


def test_table_is_in_the_given_order_and_on_one_line_each() -> None:
    settings = Example.from_layers(layers({"device": "a\nb"}, {"api_key": ""}, {"mmap": "no", "model": "m"}))
    settings.leave_out("model")
    assert settings_table(["mmap", "prompt", "device", "model", "api_key", "rows"], [settings]).splitlines() == [
        "setting  value      from",
        "mmap     false      /etc/specpair.toml [end] mmap",
        "device   'a\\nb'     flag --device",
        "model    m          /etc/specpair.toml [end] model, not used",
        "api_key  (not set)  variable END_API_KEY",
        "rows     auto       default",
    ]


def test_lasting_layers_are_the_variables_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('[drafter]\nmodel = "m"\napi_key = "sesame"\n')
    names = Names("drafter", settings_of(Options, "end"))
    environment = {"DRAFTER_ROWS": "2", "DRAFTER_ZEBRA": "1", "DRAFTER_SERVICE_HOST": "10.0.0.1"}
    warnings: list[str] = []
    variables, keys = lasting_layers(names, file, environment, warnings.append)
    assert (variables.kind, variables.values, variables.key("rows")) == ("variable", {"rows": "2"}, "DRAFTER_ROWS")
    assert (keys.kind, keys.values) == ("key", {"model": str(tmp_path / "m"), "api_key": "sesame"})
    assert keys.key("model") == f"{file} [drafter] model"
    assert warnings == [
        "DRAFTER_ZEBRA: nothing reads this variable, and it is ignored",
        f"{file} holds api_key, and everybody on this machine can read it: chmod 600 {file}",
    ]
    file.chmod(0o600)
    warnings.clear()
    assert len(lasting_layers(names, file, {}, warnings.append)) == 2 and warnings == []
    with pytest.raises(SettingsError, match="DRAFTER_ROWZ: no such variable; did you mean DRAFTER_ROWS"):
        lasting_layers(names, file, {"DRAFTER_ROWZ": "2"}, warnings.append)


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


def test_byte_order_mark_is_no_text(write: Write) -> None:
    assert _values(write("\ufeff[verifier]\r\nrows = 3\r\n".encode())) == {"rows": "3"}


def test_relative_path_is_relative_to_the_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for written, meant in (
        ("m.gguf", str(tmp_path / "there" / "m.gguf")),
        ("../m.gguf", str(tmp_path / "there" / "../m.gguf")),
        ("/m.gguf", "/m.gguf"),
        ("~/m.gguf", "/home/me/m.gguf"),
        ("", ""),
    ):
        path = write(f'[verifier]\nmodel = "{written}"', "there/settings.toml")
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
        ("[verifier]\nrows = [3]", ' [verifier] rows: write several values as one text, with commas: "1,8,32"'),
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
