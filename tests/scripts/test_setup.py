"""scripts/setup in a copy of the tree, with a fake Python in .venv that records what would be installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

FAKE = """#!/bin/sh
echo "$*" >> calls
case "$*" in
    *pip\\ download*)
        [ -e wheel-fits ] || exit 1
        touch .cache/wheels/llama_cpp_python-9+specpair.1-py3-none-any.whl ;;
    *selfcheck*) [ ! -e check-fails ] || { echo "setup: it died" >&2; exit 1; } ;;
    *pip\\ install\\ -v*)
        echo "$CMAKE_ARGS" > cmake_args
        [ ! -e build-fails ] || { echo "no compiler" >&2; exit 1; } ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a .venv whose programs only record their arguments, and a fake compiler_options.py."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts")
    for name in ("requirements.txt", "pyproject.toml", "scripts/prebuilt.py", "scripts/wheel_number"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("pip", "python"):
        program = tmp_path / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(FAKE, encoding="utf-8")
        program.chmod(0o755)
    fake_options(tree=tmp_path)
    return tmp_path


def fake_options(tree: Path, cmake: str = "", pip: str = "", found: str = "") -> None:
    """Replace compiler_options.py by a program that prints these options, and `found` to standard error."""
    text = f"import sys\nprint('cmake {cmake}'.strip())\nprint('pip {pip}'.strip())\nsys.stderr.write({found!r})\n"
    (tree / "scripts" / "compiler_options.py").write_text(text, encoding="utf-8")


def set_up(tree: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    here = {key: value for key, value in os.environ.items() if key not in ("CMAKE_ARGS", "CFLAGS", "CXXFLAGS")}
    command = [str(tree / "scripts" / "setup")]
    here |= {"PYTHON": sys.executable, "SPECPAIR_WHEELS": "", **variables}
    return subprocess.run(command, cwd=tree, env=here, capture_output=True, text=True, timeout=60)


def calls(tree: Path) -> list[str]:
    return (tree / "calls").read_text(encoding="utf-8").splitlines()


def test_compiler_without_the_bug_needs_no_options(tree: Path) -> None:
    ran = set_up(tree)
    assert (ran.returncode, ran.stderr) == (0, "") and ran.stdout.splitlines()[-1] == "setup: done"
    assert calls(tree) == [
        "-m pip install -v -r requirements.txt",
        "-m pip install --quiet --disable-pip-version-check --no-deps --editable .",
        "-m backends.llama_cpp.selfcheck",
    ]
    assert set_up(tree).stdout == "" and len(calls(tree)) == 3  # a second run installs nothing


def test_option_is_combined_with_the_user_s_cmake_args(tree: Path) -> None:
    fake_options(tree, "-DSPECPAIR_CXX_OPTIONS=-fno-dse")
    assert set_up(tree, CMAKE_ARGS="-DGGML_CUDA=on").returncode == 0
    words = (tree / "cmake_args").read_text(encoding="utf-8").split()
    assert words[0] == "-DLLAVA_BUILD=OFF" and words[-2:] == ["-DSPECPAIR_CXX_OPTIONS=-fno-dse", "-DGGML_CUDA=on"]
    assert calls(tree)[0].startswith("-m pip install -v --no-cache-dir llama-cpp-python==")  # not a wheel made without


def test_other_cmake_args_are_not_ignored_where_llama_cpp_is_installed(tree: Path) -> None:
    assert set_up(tree, CMAKE_ARGS="-DGGML_CUDA=on").returncode == 0
    assert set_up(tree, CMAKE_ARGS="-DGGML_CUDA=on").stdout == "" and set_up(tree).stdout == ""
    before = len(calls(tree))
    ran = set_up(tree, CMAKE_ARGS="-DGGML_NATIVE=off")
    assert ran.returncode == 1 and "made with other CMAKE_ARGS" in ran.stderr and "rm -r .venv" in ran.stderr
    assert len(calls(tree)) == before


def test_only_llama_cpp_is_built_without_pip_s_cache(tree: Path) -> None:
    fake_options(tree, "-DSPECPAIR_CXX_OPTIONS=-fno-dse", "--no-cache-dir")
    assert set_up(tree).returncode == 0
    [pin] = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("llama-cpp-")]
    assert calls(tree)[:2] == [
        f"-m pip install -v --no-cache-dir {pin}",
        "-m pip install -v -r requirements.txt",
    ]


def test_failing_search_for_options_fails_the_setup(tree: Path) -> None:
    (tree / "scripts" / "compiler_options.py").write_text("raise SystemExit('setup: a quote is left open')")
    ran = set_up(tree)
    assert (ran.returncode, ran.stderr) == (1, "setup: a quote is left open\n")
    assert not (tree / "calls").exists()


def test_missing_compiler_error_says_what_to_install(tree: Path) -> None:
    (tree / "build-fails").touch()
    ran = set_up(tree)
    assert ran.returncode == 1
    assert "no compiler" in ran.stderr and "apt install build-essential, or xcode-select --install" in ran.stderr
    assert not any("selfcheck" in call for call in calls(tree))


def test_failing_selfcheck_fails_the_setup(tree: Path) -> None:
    (tree / "check-fails").touch()
    ran = set_up(tree)
    assert (ran.returncode, ran.stderr) == (1, "setup: it died\n") and "setup: done" not in ran.stdout
    (tree / "check-fails").unlink()
    assert set_up(tree).stdout.endswith("setup: done\n")


def test_wheel_that_fits_is_installed_instead_of_a_compilation(tree: Path) -> None:
    fake_options(tree, found="the compiler is looked at")
    (tree / "wheel-fits").touch()
    ran = set_up(tree, SPECPAIR_WHEELS=str(tree))
    name = "llama_cpp_python-9+specpair.1-py3-none-any.whl"
    assert (ran.returncode, ran.stderr) == (0, f"setup: llama.cpp is not compiled: {name} from {tree}\n")
    assert "compiled once" not in ran.stdout
    asked, installed, *_ = calls(tree)
    assert f"--only-binary :all: --timeout 5 --retries 1 --dest .cache/wheels --find-links {tree} llama-cpp" in asked
    assert installed == f"-m pip install -v .cache/wheels/{name} -r requirements.txt"


@pytest.mark.parametrize(
    ("page", "why"), [(".", "no wheel of llama-cpp-python"), ("missing", "the page of wheels does not exist: missing")]
)
def test_without_a_wheel_that_fits_llama_cpp_is_compiled(tree: Path, page: str, why: str) -> None:
    ran = set_up(tree, SPECPAIR_WHEELS=page)
    assert ran.returncode == 0 and ran.stderr.startswith(f"setup: {why}") and "compiled once" in ran.stdout
    assert "-m pip install -v -r requirements.txt" in calls(tree)


@pytest.mark.parametrize(
    "variables",
    [
        {"CMAKE_ARGS": "-DGGML_CUDA=on"},
        {"PIP_ONLY_BINARY": "numpy,llama-cpp-python"},
        {"PIP_ONLY_BINARY": ":all:"},
        {"SPECPAIR_WHEELS": ""},
    ],
)
def test_page_is_not_asked_where_the_user_has_decided(tree: Path, variables: dict[str, str]) -> None:
    (tree / "wheel-fits").touch()
    assert set_up(tree, **{"SPECPAIR_WHEELS": str(tree), **variables}).returncode == 0
    assert not any("download" in call for call in calls(tree))


def test_llama_cpp_that_is_installed_already_stays(tree: Path) -> None:
    (tree / "wheel-fits").touch()
    [pin] = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("llama-cpp-")]
    installed = f"llama_cpp_python-{pin.partition('==')[2]}.dist-info"
    (tree / ".venv" / "lib" / "python3.11" / "site-packages" / installed).mkdir(parents=True)
    assert set_up(tree, SPECPAIR_WHEELS=str(tree)).returncode == 0
    assert calls(tree)[0] == "-m pip install -v -r requirements.txt"
