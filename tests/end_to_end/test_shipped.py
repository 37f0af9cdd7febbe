"""The shipped model files are found by path, even if the working folder has a module `models`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drafter_client import Mode, Options, Pair
from tests.drafter_client.support import running
from tests.paths import ROOT
from verifier_server.settings import Settings

SERVE = """
import asyncio
from verifier_server.app import create_app
from verifier_server.settings import from_environment

async def serve():
    app = create_app(from_environment({"VERIFIER_SLOTS": "1", "VERIFIER_CONTEXT": "64"}))
    async with app.router.lifespan_context(app):
        await asyncio.to_thread(app.state.service.loader.wait)
        print(app.state.service.engine.backend.model_name)

asyncio.run(serve())
"""
WRITE = """
import sys
from drafter_client import Options, Pair

with Pair(sys.argv[1]) as pair:
    print(pair.generate("def main():", Options(max_tokens=16)).read().text, end="")
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with a module `models`, the name of our package that makes the models."""
    (tmp_path / "models.py").write_text("raise RuntimeError('this is not the models you are looking for')\n")
    return tmp_path


def _python(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_pair_runs_in_a_folder_with_a_module_models(hostile: Path) -> None:
    assert _python(hostile, "-c", "import models").returncode == 1, "the folder's module shadows the package"
    with running(Settings(slots=2, context=512, threads=1, deterministic=True)) as verifier:
        with Pair(verifier.url, draft=None) as pair:
            alone = pair.generate("def main():", Options(max_tokens=16, mode=Mode.TARGET)).read().text
        ran = _python(hostile, "-c", WRITE, verifier.url)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, alone, "")


def test_drafter_command_runs_in_that_folder(hostile: Path) -> None:
    ran = _python(hostile, "-m", "drafter_client", "solo", "draft", "--prompt", "import", "--max-tokens", "2", "--json")
    assert ran.returncode == 0, ran.stderr
