"""Both ends work in a folder whose modules have the names of their packages: a user's folder may be called so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.release_check import packages
from specpair.siblings import SIBLINGS
from tests.paths import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a module, or a package, of each name, which cannot be imported."""
    made = tmp_path_factory.mktemp("users")
    for number, name in enumerate(SIBLINGS):
        path = made / f"{name}.py" if number % 2 else made / name / "__init__.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text('raise ImportError(f"{__name__} is the user\'s own")\n')
    return made


def _ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "VERIFIER_BACKEND": "scripted"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_all_packages_that_ship_are_known() -> None:
    assert {*SIBLINGS, "verifier_server", "drafter_client", "specpair"} == set(packages())


@pytest.mark.parametrize(
    "arguments",
    [
        "-m drafter_client solo --backend scripted --model 1 --prompt x --max-tokens 2",
        "-m verifier_server --print-config",
        "-m verifier_server compile --help",
        "-m specpair router --help",
    ],
)
def test_python_m_works_beside_modules_of_the_same_names(folder: Path, arguments: str) -> None:
    ran = _ran(folder, *arguments.split())
    assert ran.returncode == 0, ran.stderr


def test_uvicorn_and_programs_work_beside_them(folder: Path) -> None:
    # As uvicorn does, without serving: the working folder comes first.
    imports = "import sys; sys.path.insert(0, ''); from uvicorn.importer import import_from_string as of; "
    ran = _ran(folder, "-c", imports + "of('verifier_server.app:app'); import drafter_client; drafter_client.Pair")
    assert ran.returncode == 0, ran.stderr


def test_a_program_that_has_imported_another_one_is_told(folder: Path) -> None:
    program = "import sys, types; sys.modules['backends'] = types.ModuleType('backends'); import drafter_client"
    ran = _ran(folder, "-c", program)
    assert ran.returncode == 1
    assert "ImportError: the module 'backends' of this program, " in ran.stderr and "rename it" in ran.stderr
