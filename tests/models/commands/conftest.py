"""The command `models` against the stand-in of a hub that a test module serves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.openai_api.answer import reply_style
from models.commands import command
from models.commands.cached_models import ServedModel
from models.hub.repository import Hub
from specpair.engines.load_options import FreeMemory
from tests.stand_ins.hub import HubStandIn

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(stand_in: HubStandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    made = command.parser("verifier")

    def ran(*arguments: str, serves: ServedModel | None = None, room: FreeMemory | None = None) -> tuple[int, str, str]:
        hub = Hub(stand_in.address, tmp_path / "cache", False, wait=lambda _seconds: None)
        status = command.run(made, made.parse(arguments), reply_style, lambda: serves, lambda: room, lambda: hub)
        said = capsys.readouterr()
        return status, said.out, said.err

    return ran
