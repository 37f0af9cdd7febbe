"""deploy/packages: what agrees with pyproject.toml and with the command lines, and what can be read without a Mac."""

import plistlib
import re
import shlex
import subprocess
import tomllib

import pytest

from drafter_client.cli.commands import serve_parser
from drafter_client.program_options import OPTIONS
from tests.paths import ROOT

FOLDER = ROOT / "deploy" / "packages"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PKGBUILD = (FOLDER / "PKGBUILD").read_text(encoding="utf-8")
FORMULA = (FOLDER / "specpair.rb").read_text(encoding="utf-8")


def test_versions_licences_and_words_are_the_projects() -> None:
    assert f"pkgver={PROJECT['version']}\n" in PKGBUILD and f"/specpair_core-{PROJECT['version']}.tar.gz" in FORMULA
    assert f"license=({PROJECT['license']})" in PKGBUILD and f'license "{PROJECT["license"]}"' in FORMULA
    assert f'pkgdesc="{PROJECT["description"]}"' in PKGBUILD
    [described] = re.findall(r'desc "(.*)"', FORMULA)
    assert PROJECT["description"].startswith(described)


@pytest.mark.parametrize("text", [PKGBUILD, FORMULA])
def test_each_command_is_installed(text: str) -> None:
    assert " ".join(PROJECT["scripts"]) in text


def test_launchd_starts_a_command_that_the_drafter_knows() -> None:
    job = plistlib.loads((FOLDER / "specpair.drafter.plist").read_bytes())
    assert (job["Label"], job["KeepAlive"]) == ("specpair.drafter", {"SuccessfulExit": False})
    assert job["ExitTimeOut"] > OPTIONS["drain"].usual
    shell, flag, script = job["ProgramArguments"]
    assert (shell, flag) == ("/bin/sh", "-c")
    subprocess.run(["sh", "-n", "-c", script], check=True)
    command = shlex.split(script)
    serve = command.index("serve")
    assert command[serve - 1].endswith("/bin/drafter")
    serve_parser().parse(command[serve + 1 : serve + 3])
