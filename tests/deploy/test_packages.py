"""deploy/packages: what agrees with pyproject.toml and with the command lines, and what can be read without a Mac."""

import plistlib
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest

from deploy.packages import deb
from drafter_client.cli.parsers import serve_parser
from drafter_client.program_options import OPTIONS
from gateway.router.options import OPTIONS as ROUTER
from tests.paths import ROOT
from verifier_server.options import OPTIONS as VERIFIER

FOLDER = ROOT / "deploy" / "packages"
TRIALS = FOLDER / "trials"
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


def test_bash_reads_the_pkgbuild() -> None:
    subprocess.run(["bash", "-n", FOLDER / "PKGBUILD"], check=True)


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


def test_control_file_of_debian() -> None:
    text = deb.control("amd64", (3, 11), 12345)
    fields = dict(line.split(": ", 1) for line in text.splitlines() if line[0] != " ")
    assert (fields["Version"], fields["Architecture"], fields["Installed-Size"]) == (
        PROJECT["version"],
        "amd64",
        "12345",
    )
    assert "python3 (>= 3.11), python3 (<< 3.12)" in fields["Depends"]
    assert "@" not in text.replace("@localhost", "")
    assert set(deb.COMMANDS) == set(PROJECT["scripts"])


def test_settings_of_debian_are_those_that_its_units_read_and_stay_as_the_user_has_them() -> None:
    units = [*(ROOT / "deploy" / "systemd").glob("*.service")]
    read = {line.removeprefix("EnvironmentFile=") for unit in units for line in unit.read_text().splitlines()}
    assert {f"/etc/specpair/{name}" for name in deb.SETTINGS} <= read
    assert deb.conffiles().splitlines() == [f"/etc/specpair/{name}" for name in deb.SETTINGS]
    for unit in units:
        assert "ExecStart=/opt/specpair/bin/" in deb.unit(unit.read_text())


def test_settings_that_debian_s_files_show_exist() -> None:
    for name in deb.SETTINGS:
        end = name.removesuffix(".env")
        known = {"verifier": VERIFIER, "drafter": OPTIONS, "router": ROUTER}[end]
        shown = re.findall(rf"(?m)^#{end.upper()}_(\w+)=", (deb.DEBIAN / name).read_text(encoding="utf-8"))
        assert shown and {each.lower() for each in shown} <= {*known, "host"}  # the verifier's address is uvicorn's


SCRIPTS = [*(f"debian/{name}" for name in deb.SCRIPTS), *(f"trials/{path.name}" for path in TRIALS.glob("*.sh"))]


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_shells_read_the_scripts(script: str) -> None:
    shell = "bash" if script.startswith("trials") else "sh"
    subprocess.run([shell, "-n", FOLDER / script], check=True)


@pytest.mark.skipif(shutil.which("ruby") is None, reason="ruby is not installed")
@pytest.mark.parametrize("script", ["specpair.rb", "trials/formula.rb"])
def test_ruby_reads_the_formula(script: str) -> None:
    assert subprocess.check_output(["ruby", "-c", FOLDER / script], text=True) == "Syntax OK\n"


def test_each_trial_is_documented_with_what_it_printed() -> None:
    page = (ROOT / "docs" / "packages.md").read_text(encoding="utf-8")
    for path in TRIALS.glob("*.sh"):
        assert path.name in ("clean_root.sh", "boot.sh") or f"sudo deploy/packages/trials/{path.name}" in page
    for name in re.findall(r"results/(packages_\w+\.txt)", page):
        first = (ROOT / "lab" / "benchmarks" / "results" / name).read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# ") and "deploy/packages/trials/" in first, name
