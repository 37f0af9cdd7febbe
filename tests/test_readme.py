"""The README's tables list every setting and flag with its current description, every error code and strategy."""

import re

from drafter_client.cli.commands import drafter_parser
from drafter_client.display.panel_rows import exactness
from speculation import errors
from speculation.acceptance.strategies import Strategy
from tests.paths import ROOT
from verifier_server.settings import PREFIX, Settings

README = ROOT / "README.md"


def test_table_has_every_setting() -> None:
    text = README.read_text(encoding="utf-8")
    missing = [row for row in settings_rows() if row not in text]
    assert not missing, "add to README.md:\n" + "\n".join(missing)


def test_readme_has_no_placeholders() -> None:
    assert not re.findall(r"^[A-Z]+_[A-Z]+$|\bTODO\b|\bXXX\b", README.read_text(encoding="utf-8"), re.MULTILINE)


def test_table_has_every_flag() -> None:
    text = README.read_text(encoding="utf-8")
    missing = [row for row in flag_rows() if row not in text]
    assert not missing, "add to README.md:\n" + "\n".join(missing)


def test_table_has_every_error_code() -> None:
    text = README.read_text(encoding="utf-8")
    raised = [cls for base in (errors.RequestError, errors.ServerError) for cls in base.__subclasses__()]
    assert len(raised) > 15
    assert not [cls.code for cls in raised if f"`{cls.code}`" not in text]


def test_tables_have_every_strategy() -> None:
    text = README.read_text(encoding="utf-8")
    assert [each for each in Strategy if not re.search(rf"^\| `{each}`.* \| .+ \| .+ \|", text, re.MULTILINE)] == []
    of_panel = {each: exactness(each, drafted=True) for each in Strategy if each is not Strategy.COUPLED}
    assert [each for each, words in of_panel.items() if words == "?"] == []


def settings_rows() -> list[str]:
    """The rows of the table of the verifier's settings."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{str(field.default).lower()}`"
        rows.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return rows


def flag_rows() -> list[str]:
    """The rows of the table of the drafter's flags."""
    rows = []
    for action in drafter_parser()._actions:
        if set(action.option_strings) & {"--help", "--version"}:
            continue
        value = "" if action.nargs == 0 else " " + str(action.metavar or action.dest.rpartition("_")[2].upper())
        if action.choices is not None:
            value = " {" + ",".join(action.choices) + "}"
        meaning = str(action.help) % {"default": action.default}
        rows.append(f"| `{action.option_strings[0]}{value}` | {meaning} |".replace("auto|N", "auto\\|N"))
    return rows


if __name__ == "__main__":
    print("\n".join(["## settings", *settings_rows(), "## flags", *flag_rows()]))
