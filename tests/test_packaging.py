"""What is installed: ranges in pyproject.toml, exact versions in the lists of requirements, extras named in errors.

The same of the lab, a distribution of its own.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from models.gguf_file import read_gguf
from scripts.release_check import CODE, LAB_PROJECT, WHOLE_PROJECT
from specpair import programs
from specpair.command_line import start
from specpair.extras import (
    DISTRIBUTION,
    EXTRAS,
    LAB,
    MissingExtra,
    extras_named,
    installing,
    pip_install,
)
from tests.paths import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LAB_SETTINGS = tomllib.loads((LAB_PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
LAB_DISTRIBUTION = LAB_SETTINGS["project"]
CORE_RANGES = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
RANGES = CORE_RANGES | {"lab": LAB_DISTRIBUTION["dependencies"]}
WHOLE = tomllib.loads((WHOLE_PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOTH_ENDS = {
    "llguidance",
    "markdown_it",  # rich brings it
    "numpy",
    "pydantic",
    "pydantic_core",
    "rich",
    "shtab",
}  # modules of what is no extra
LISTS = ["requirements.txt", *sorted(f"requirements/{path.name}" for path in (ROOT / "requirements").iterdir())]
# Neuron's packages and vLLM need other versions beside them.
PINNED = [each for each in LISTS if "neuron" not in each and "vllm" not in each]


def _pins(file: str) -> list[Requirement]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return [Requirement(line.partition("#")[0]) for line in lines if line and line[0] not in "#-"]


def _version(pin: Requirement) -> str:
    """The one version that a pin allows."""
    [exact] = pin.specifier
    assert exact.operator == "==" and not exact.version.endswith("*"), pin
    return exact.version


def _names(lists: list[str]) -> set[str]:
    return {Requirement(line).name for extra in lists for line in RANGES[extra]}


def test_licence_is_named_and_its_file_says_where_the_text_stands() -> None:
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith(f"SPDX-License-Identifier: {PROJECT['license']}\n")
    assert PROJECT["authors"] == [{"name": "the specpair developers"}] and PROJECT["authors"][0]["name"] in text
    assert "https://www.apache.org/licenses/LICENSE-2.0\n" in text
    assert {read_gguf(path).fields["general.license"].value for path in (ROOT / "models").glob("*.gguf")} == {"PSF-2.0"}
    assert "PSF-2.0" in text


@pytest.mark.parametrize("file", PINNED)
def test_pinned_versions_are_exact_and_satisfy_the_ranges(file: str) -> None:
    ranges = [Requirement(line) for lines in RANGES.values() for line in lines]
    outside = [
        f"{pin}: pyproject.toml has {each}"
        for pin in _pins(file)
        for each in ranges
        if each.name == pin.name and not each.specifier.contains(_version(pin))
    ]
    assert not outside, "\n".join(outside)


def test_every_range_has_a_lower_and_an_upper_bound_and_an_exact_version() -> None:
    pinned = {pin.name for file in PINNED for pin in _pins(file)}
    assert _names([extra for extra in RANGES if extra not in ("all", "vllm")]) - pinned == {CODE}
    for lines in RANGES.values():
        for each in map(Requirement, lines):
            assert each.name == CODE or {bound.operator for bound in each.specifier} in ({">=", "<"}, {"=="})


def test_a_package_has_one_exact_version_in_all_lists() -> None:
    versions: dict[str, set[str]] = {}
    for file in PINNED:
        for pin in _pins(file):
            versions.setdefault(pin.name, set()).add(_version(pin))
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_all_is_what_make_setup_installs() -> None:
    [line] = RANGES["all"]
    assert Requirement(line).extras == {"client", "server", "llama", "hub"}
    assert _names(["", *Requirement(line).extras]) == {pin.name for pin in _pins("requirements.txt")}


def test_specpair_is_the_code_with_all_that_a_user_needs_and_its_commands() -> None:
    assert CODE == DISTRIBUTION == PROJECT["name"] and WHOLE["name"] == "specpair"
    [whole] = map(Requirement, WHOLE["dependencies"])
    assert (whole.name, whole.extras, _version(whole)) == (CODE, {"all"}, PROJECT["version"])
    for key in ("version", "description", "license", "authors", "requires-python", "scripts"):
        assert WHOLE[key] == PROJECT[key], key
    extras = {name: [f"{CODE}[{name}]"] for name in CORE_RANGES}
    assert WHOLE["optional-dependencies"] == {
        name: lines for name, lines in extras.items() if name not in ("", "all", "client", "server", "llama", "hub")
    }


def test_the_code_alone_brings_no_engine_and_nothing_that_compiles() -> None:
    assert _names([""]) == {"numpy", "pydantic", "rich", "llguidance", "shtab"}


@pytest.mark.parametrize("extra", ["torch", "mlx"])
def test_a_list_of_its_own_has_what_the_extra_has(extra: str) -> None:
    assert _names([extra]) <= {pin.name for pin in _pins(f"requirements/{extra}.txt")}


def test_the_lab_is_of_the_version_of_the_code_and_holds_all_of_its_folders() -> None:
    whole, *others = map(Requirement, LAB_DISTRIBUTION["dependencies"])
    assert (whole.name, whole.extras, _version(whole)) == (CODE, {"all"}, PROJECT["version"])
    assert {each.name for each in others} == {"pyyaml"} and LAB_DISTRIBUTION["name"] == LAB
    for key in ("version", "license", "authors", "requires-python"):
        assert LAB_DISTRIBUTION[key] == PROJECT[key], key
    folders = {path.parent.relative_to(ROOT) for path in LAB_PROJECT.rglob("*.py")}
    assert {str(folder).replace("/", ".") for folder in folders} == set(LAB_SETTINGS["tool"]["setuptools"]["packages"])


def test_the_lab_s_commands_are_entry_points_that_the_house_knows() -> None:
    assert list(LAB_DISTRIBUTION["entry-points"]) == [programs.GROUP]
    modules = LAB_DISTRIBUTION["entry-points"][programs.GROUP]
    assert tuple(modules) == programs.NAMES
    for name, module in modules.items():
        assert name in import_module(module).PARSERS


@pytest.mark.parametrize("command", ["drafter bench", "drafter report", "specpair simulator"])
def test_without_the_lab_its_commands_say_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(programs, "entry_points", lambda **_: ())
    program, word = command.split()
    monkeypatch.setattr(start, "die_by_interrupts", lambda: None)  # it would stay so in this process
    monkeypatch.setattr(sys, "argv", [program, word, "--help"])
    assert import_module({"drafter": "drafter_client", "specpair": "specpair"}[program] + ".__main__").main() == 1
    expected = f"{program}: '{command}' is part of the lab, which is not installed: make lab\n"
    assert capsys.readouterr() == ("", expected)
    assert not programs.lab_parsers(program)


def test_what_the_packages_import_comes_with_an_extra_or_with_both_ends() -> None:
    known = {*sys.stdlib_module_names, *PACKAGES, *BOTH_ENDS}.union(*EXTRAS.values())
    of_lab = known.union({"yaml"})
    in_checkout = ("lab/benchmarks", "lab/pictures")  # which run there only, with what tests have
    unknown = [
        f"{path.relative_to(ROOT)} imports {name}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not str(path.relative_to(ROOT)).startswith(in_checkout)
        for name in _imported(path)
        if name.partition(".")[0] not in (of_lab if package == "lab" else known)
    ]
    assert not unknown, "\n".join(unknown)


def _imported(path: Path) -> set[str]:
    tree = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module for node in tree if isinstance(node, ast.ImportFrom) and node.module}


def test_modules_of_an_extra_are_those_of_its_packages() -> None:
    """A module has the name of its package, or of one that the package brings."""
    brought = {"llama_cpp": "llama-cpp-python", "socksio": "httpx"}
    assert set(EXTRAS) == set(CORE_RANGES) - {"", "all"}
    for extra, modules in EXTRAS.items():
        assert {brought.get(module, module.replace("_", "-")) for module in modules} <= _names([extra])


def test_extras_are_named_by_file_in_a_checkout_and_by_name_beside_a_wheel(tmp_path: Path) -> None:
    for name in EXTRAS:
        listed = name in ("torch", "mlx", "vllm")
        here = f"-r requirements/{name}.txt" if listed else f"-e '.[{name}]'"
        python = ".venv-vllm/bin/python" if name == "vllm" else sys.executable  # vLLM would break this environment
        assert f"{python} -m pip install {here}" in installing(name)
        assert f"{python} -m pip install '{CODE}[{name}]'" in installing(name, tmp_path)


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("pipx_metadata.json", "{variables}pipx runpip specpair install {what}"),
        ("uv-receipt.toml", "{variables}uv pip install --python {python} {what}"),
    ],
)
def test_in_an_environment_without_pip_its_tool_installs(tmp_path: Path, file: str, command: str) -> None:
    environment = tmp_path / "specpair"
    environment.mkdir()
    (environment / file).touch()
    for variables in ("", "CFLAGS=-g"):
        expected = command.format(variables=variables and "CFLAGS=-g ", python=sys.executable, what="x==1")
        assert pip_install("x==1", variables, environment) == expected
    assert installing("llama", tmp_path, environment) == pip_install("'specpair-core[llama]'", "", environment)


def test_missing_package_of_an_extra_is_named_with_it_and_others_are_not() -> None:
    with pytest.raises(MissingExtra) as caught, extras_named():
        raise ModuleNotFoundError("No module named 'fastapi.openapi'", name="fastapi.openapi")
    assert str(caught.value) == f"fastapi is not installed: {installing('server')}"
    other = ModuleNotFoundError("No module named 'zebra'", name="zebra")
    with pytest.raises(ModuleNotFoundError) as passed, extras_named():
        raise other
    assert passed.value is other


BLOCKED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def _ran(folder: Path, missing: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python as if the packages of the extras `missing` were not installed."""
    modules = {module for extra in missing for module in EXTRAS[extra]}
    modules -= {module for extra in {*EXTRAS} - missing for module in EXTRAS[extra]}
    (folder / "sitecustomize.py").write_text(BLOCKED.format(missing=modules), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


# Runs programs one after the other, and imports.
SEVERAL = """
import runpy, sys
from importlib import import_module

programs, modules = {programs!r}, {modules!r}
for program in programs:
    sys.argv = program.split()
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, (program, end.code)
for module in modules:
    import_module(module)
if "drafter_client" in modules:
    drafter_client = import_module("drafter_client")
    drafter_client.Pair, drafter_client.Lookup, drafter_client.AsyncPair
"""


@pytest.mark.parametrize(
    ("installed", "programs", "modules"),
    [
        (
            "client",
            [
                "drafter_client --help",
                "drafter_client --backend ngram --print-config",
                "drafter_client completion bash",
                "specpair --help",
            ],
            ["drafter_client"],
        ),
        (
            "server",
            ["verifier_server --print-config", "verifier_server key --help", "verifier_server completion fish"],
            ["verifier_server.app", "verifier_server.selftest"],
        ),
        (
            "client server",
            ["drafter_client serve --help", "specpair completion zsh"],
            ["drafter_client.cli.serve", "drafter_client.serve.app"],
        ),
    ],
)
def test_each_end_gets_by_with_its_own_extra(
    tmp_path: Path, installed: str, programs: list[str], modules: list[str]
) -> None:
    code = SEVERAL.format(programs=programs, modules=modules)
    ran = _ran(tmp_path, set(EXTRAS) - set(installed.split()), "-c", code)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("installed", "arguments", "message"),
    [
        ("server", "-m drafter_client --prompt x", r"drafter: httpx is not installed: .*'\.\[client\]'"),
        ("client", "-m drafter_client serve", r"drafter: \w+ is not installed: .*'\.\[server\]'"),
        ("client", "-m verifier_server", r"verifier: \w+ is not installed: .*'\.\[server\]'"),
        (
            "client",
            "-m drafter_client solo --prompt x",
            r"drafter: the llama_cpp backend needs llama_cpp, which is not installed: .*'\.\[llama\]'",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_extra(tmp_path: Path, installed: str, arguments: str, message: str) -> None:
    ran = _ran(tmp_path, set(EXTRAS) - set(installed.split()), *arguments.split())
    assert ran.returncode == 1 and re.fullmatch(message + "\n", ran.stderr), ran.stderr


def test_library_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    ran = _ran(tmp_path, {"client", "sglang"}, "-c", "from drafter_client import Pair")
    assert "MissingExtra: httpx is not installed: " in ran.stderr
