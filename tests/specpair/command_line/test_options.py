"""Options as flags, settings and values: one field says them all."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from drafter_client.program_options import ENGINE
from specpair.command_line.layers import Layer, LayeredSettings, Names, settings_model
from specpair.command_line.options import add_options, option_of, option_values
from specpair.command_line.parser import Parser, flag
from specpair.command_line.setting_values import SettingsError
from specpair.engines.load_options import LoadOptions
from specpair.options.option import like, option, options_of, settings_of
from verifier_server.options import OPTIONS


def _even(text: str) -> None:
    if int(text) % 2:
        raise ValueError("is odd")


@dataclass(frozen=True, kw_only=True)
class Oven:
    """Options of every kind."""

    slots: int | None = option(1, "slots at once; auto: all", name="rows", auto=True, ge=1, le=9, group="oven")
    heat: float = option(180.0, "degrees", formerly="degrees", gt=0, group="oven", placeholder="C")
    widths: tuple[int, ...] | None = option(None, "widths", usually="its own", group="oven")
    kind: str = option("gas", "kind", choices=("gas", "wood"), group="oven")
    recipe: Path | None = option(None, "recipe", formerly="card", group="oven")
    secret: SecretStr | None = option(None, "secret", group="oven")
    fan: bool = option(True, "fan", group="oven", only="here")
    label: str = option("2", "an even number", check=_even, longest=3, group="oven")
    hidden: int = option(7, "no setting: it has no group", ge=0)


@dataclass(frozen=True, kw_only=True)
class Stove:
    """Options like another one's."""

    plates: int | None = like(Oven, "slots", "plates", group="stove")
    heat: float = like(Oven, "heat", "degrees of a plate", default=90.0)


HERE, THERE = settings_of(Oven, "here"), settings_of(Oven, "there")
Settings: Any = settings_model(LayeredSettings, HERE)


def _read(**values: Any) -> Any:
    return Settings.from_layers([Layer("flag", values, flag)])


def test_settings_of_an_end_have_a_group_and_are_its_own() -> None:
    assert list(HERE) == ["rows", "heat", "widths", "kind", "recipe", "secret", "fan", "label"]
    assert set(HERE) - set(THERE) == {"fan"}
    names = Names("here", HERE)
    assert (names.paths, names.secrets, names.variable("rows")) == ({"recipe", "card"}, {"secret"}, "HERE_ROWS")
    assert names.former == {"degrees": "heat", "card": "recipe"}


def test_texts_are_read_as_the_option_says() -> None:
    texts = {"rows": "3", "heat": "90", "widths": "1,8", "kind": "wood", "recipe": "~", "secret": "k", "fan": "no"}
    settings = _read(**texts)
    expected = Oven(
        slots=3, heat=90.0, widths=(1, 8), kind="wood", recipe=Path.home(), secret=SecretStr("k"), fan=False
    )
    assert Oven(**option_values(Oven, settings)) == expected
    assert Oven(**option_values(Oven, _read())) == Oven(slots=None), "auto is the default of a setting that has it"
    assert Oven(**option_values(Oven, _read(rows="auto"))).slots is None
    assert Oven(**option_values(Oven, Settings(rows=4, heat=5))) == Oven(slots=4, heat=5.0)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rows", "0", "must be in [1, 9], got 0"),
        ("rows", "x", "'x' is neither auto nor a whole number"),
        ("heat", "0", "must be above 0, got 0"),
        ("heat", "nan", "must be above 0, got nan"),
        ("heat", "hot", "'hot' is not a number"),
        ("widths", "8,1", "'8,1' is not a list of ascending numbers such as 1,4,16"),
        ("kind", "woods", "no 'woods'; did you mean wood?"),
        ("kind", "coal", "no 'coal'; choose one of gas, wood"),
        ("recipe", "", "is empty: name a file or a folder"),
        ("label", "3", "is odd"),
        ("label", "2222", "must have at most 3 characters, got 4"),
    ],
)
def test_bad_text_is_named_as_it_was_given(name: str, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        _read(**{name: text})
    assert str(caught.value) == f"{flag(name)}: {words}"


def test_flags_have_the_words_the_default_and_the_placeholder() -> None:
    parser = Parser("oven", usage="[FLAGS]", description="", examples=())
    add_options(parser.add_argument_group("oven"), Oven, heat={"default": 20.0, "words": "warmth"})
    flags = {action.dest: action for action in parser.actions() if option_of(action) is not None}
    assert list(flags) == [*HERE]
    assert "--degrees" not in parser.format_help() and parser.parse(["--degrees=9"]).degrees == "9"
    shown = {name: (action.metavar, action.help, action.default) for name, action in flags.items()}
    assert shown["rows"] == ("auto|N", "slots at once; auto: all (default: auto)", "auto")
    assert shown["heat"] == ("C", "warmth (default: 20)", 20.0)
    assert shown["widths"] == ("N,N,…", "widths (default: its own)", None)
    assert shown["kind"] == ("{gas,wood}", "kind (default: gas)", "gas")
    assert shown["fan"] == (None, "fan (default: yes)", True)
    assert parser.parse(["--rows=x"]).rows == "x", "the settings read it, wherever it was given"


def test_setting_like_another_has_its_range() -> None:
    plates, heat = options_of(Stove).values()
    assert (plates.setting, plates.usual, plates.bounds, plates.about.words) == (
        "plates",
        "auto",
        "in [1, 9]",
        "plates",
    )
    assert (heat.usual, heat.bounds, heat.about.formerly) == (90.0, "above 0", "")


def test_an_engine_s_option_is_the_same_setting_at_both_ends() -> None:
    assert {name: OPTIONS[name] for name in ENGINE} == ENGINE | {name: OPTIONS[name] for name in ("context", "kv_type")}
    assert ENGINE["context"] == OPTIONS["context"].saying(ge=8), "the drafter needs more of it"
    of_target = settings_of(LoadOptions, "verifier")
    assert {name for name in of_target if name not in ENGINE} == {
        *("model", "slots", "mmap", "batch_tokens", "flash_attention", "deterministic"),
    }
