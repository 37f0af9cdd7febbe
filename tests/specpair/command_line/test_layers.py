"""The layers of settings: flag over variable over file over default; each value knows where it came from."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import SecretStr, model_validator

from specpair.command_line.given_values import SettingsError
from specpair.command_line.layers import Layer, LayeredSettings, Names, lasting_layers, settings_model, settings_table
from specpair.command_line.parser import flag
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


def test_assignment_is_written_as_it_was_given() -> None:
    settings = Example.from_layers(layers({"rows": "2"}, {"device": "cpu"}, {"model": "m"}))
    assert [settings.assignment(name) for name in ("rows", "device", "model", "mmap")] == [
        "--rows 2",
        "END_DEVICE=cpu",
        "/etc/specpair.toml [end] model = m",
        "<mmap> True",
    ]


def test_lasting_layers_are_the_variables_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('[drafter]\nmodel = "m"\napi_key = "sesame"\n')
    names = Names("drafter", ("rows", "model", "api_key"), {"model"}, Example.secrets())
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
