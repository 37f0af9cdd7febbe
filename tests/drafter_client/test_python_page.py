"""The program of the page on Python that has models of one's own runs as it stands, with the address of a verifier."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

import drafter_client
from backends.scripted import Script, ScriptedBackend
from tests.drafter_client.support import serving
from tests.paths import ROOT


class _Chatting(ScriptedBackend):
    chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


@pytest.fixture
def address() -> Iterator[str]:
    """A verifier that has a chat template."""
    with serving(_Chatting(Script())) as verifier:
        yield verifier.url


def test_the_ten_lines_with_models_of_one_s_own_run(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    [program] = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "expanduser" in each]
    assert len([line for line in program.splitlines() if line]) <= 10
    own = drafter_client.DraftModel

    def scripted(path: Any) -> drafter_client.DraftModel:
        assert path.is_absolute() and path.suffix == ".gguf"
        return own("1", "scripted")

    monkeypatch.setattr(drafter_client, "DraftModel", scripted)
    exec(program.replace("http://bigbox:8000", address), {})
    assert len(capsys.readouterr().out) > 100
