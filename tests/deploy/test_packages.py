"""deploy/packages and deploy/systemd: what agrees with pyproject.toml and the programs; systemd's own checks."""

import os
import plistlib
import re
import shlex
import shutil
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from drafter_client.cli.commands import serve_parser
from drafter_client.program_options import OPTIONS
from tests.paths import ROOT
from tests.settings_names import SETTINGS

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


SYSTEMD = ROOT / "deploy" / "systemd"
UNITS = ("verifier", "drafter", "router")
DRAIN = {"verifier": "drain_seconds", "drafter": "drain", "router": "drain"}
PROGRAM = "/opt/specpair/.venv/bin/"
MOST_EXPOSED = 1.2  # of 10, by systemd's own count: the port must be reached, and processes and memory be seen
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (apt-get install systemd)")


def unit(name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names are case-sensitive
    parser.read(SYSTEMD / f"specpair-{name}.service", encoding="utf-8")
    return dict(parser["Service"])


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_program_of_ours(name: str) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    command = unit(name)["ExecStart"].split()[0]
    assert command.startswith(PROGRAM) and command.removeprefix(PROGRAM) in scripts


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_waits_for_the_drain(name: str) -> None:
    text = (SYSTEMD / f"specpair-{name}.service").read_text(encoding="utf-8")
    [(variable, usual)] = re.findall(r"# More than ([A-Z_]+), which is (\d+)", text)
    assert variable == f"{name.upper()}_{DRAIN[name].upper()}" and DRAIN[name] in SETTINGS[f"{name.upper()}_"]
    assert int(unit(name)["TimeoutStopSec"]) >= int(usual) + 10


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as they would lie, with programs at the place of ours."""
    shutil.copytree(SYSTEMD, tmp_path / "units")
    for path in (tmp_path / "units").glob("*.service"):
        path.write_text(path.read_text(encoding="utf-8").replace(PROGRAM, f"{tmp_path}/"), encoding="utf-8")
        (tmp_path / path.stem.removeprefix("specpair-")).touch(0o755)
    (tmp_path / "specpair").touch(0o755)
    return tmp_path / "units"


def analyze(units: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [str(ANALYZE), "--no-pager", *arguments],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{units}:"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@needs_systemd
def test_systemd_accepts_the_units(installed: Path) -> None:
    told = analyze(installed, "verify", "--man=no", *(f"specpair-{name}.service" for name in UNITS))
    assert [line for line in told.splitlines() if "specpair" in line] == []


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_exposed_as_little_as_it_can_be(name: str, installed: Path) -> None:
    threshold = f"--threshold={10 * MOST_EXPOSED:.0f}"
    told = analyze(installed, "security", "--offline=true", threshold, f"specpair-{name}.service")
    [level] = re.findall(rf"Overall exposure level for specpair-{name}.service: ([\d.]+)", told)
    assert float(level) <= MOST_EXPOSED


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_anew_what_died_or_hangs(name: str) -> None:
    settings = unit(name)
    assert (settings["Type"], settings["NotifyAccess"], settings["Restart"]) == ("notify", "main", "on-failure")
    assert settings["WatchdogSec"].endswith("min")
    waits = name != "router"  # for a model
    assert (settings.get("TimeoutStartSec") == "infinity") is waits
