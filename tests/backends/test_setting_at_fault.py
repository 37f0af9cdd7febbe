"""Errors of engines carry the setting at fault, and begin with it, so that a program can put its own name there."""

import ast
from collections.abc import Iterator
from dataclasses import fields

import pytest

from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.paths import ROOT
from verifier_server.settings import Settings

SETTINGS = {field.name for field in fields(LoadOptions)} | set(Settings.model_fields)


def _raised() -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """The place of each ModelLoadError that an engine makes, with its message and its setting."""
    for path in sorted((ROOT / "backends").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "ModelLoadError":
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield where, node.args[0], node.args[1] if len(node.args) > 1 else None


RAISED = list(_raised())


def _beginning(message: ast.expr) -> str:
    """The text with which a message begins, or the expression whose value it begins with."""
    if isinstance(message, ast.JoinedStr):
        message = message.values[0]
    if isinstance(message, ast.Constant):
        return str(message.value)
    return ast.unparse(message.value if isinstance(message, ast.FormattedValue) else message)


@pytest.mark.parametrize(("where", "message", "setting"), RAISED, ids=[where for where, _, _ in RAISED])
def test_message_begins_with_the_setting_that_it_carries(
    where: str, message: ast.expr, setting: ast.expr | None
) -> None:
    first, *_ = _beginning(message).replace(":", " ").split()
    if setting is None:
        assert first not in SETTINGS
    else:
        assert first == _beginning(setting)


def test_a_program_puts_its_own_name_for_the_setting() -> None:
    error = ModelLoadError("device 'x' cannot be used here", "device")
    assert error.called("--device") == "--device 'x' cannot be used here"
    assert (str(error), error.setting) == ("device 'x' cannot be used here", "device")
    assert (ModelLoadError("no such file").setting, str(ModelLoadError("no such file"))) == (None, "no such file")
