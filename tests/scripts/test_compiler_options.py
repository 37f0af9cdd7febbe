"""Compiler options for llama.cpp, with fake compilers, and the probe with the real compiler."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import compiler_options
from scripts.compiler_options import CURE, compiler, has_amx, options, prebuilt_only

BOTH = [f"-DSPECPAIR_{language}_OPTIONS=-fno-dse" for language in ("C", "CXX")]
ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="x86-64 Linux only")


class Compilers:
    """Fake compilers on their own PATH. Their programs exit with `dropped`, or with 0 if compiled with `-fno-dse`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, folder / "calls"
        self.environment = {"PATH": f"{folder}:/usr/bin:/bin"}

    def add(self, name: str, dropped: int = 3, status: int = 0) -> str:
        path = self.folder / name
        path.write_text(
            f"""#!/bin/sh
echo "{name} $*" >> {self.calls}
said={dropped}
for last; do [ "$last" != -fno-dse ] || said=0; done
printf '#!/bin/sh\\nexit %d\\n' $said > "$last"
chmod +x "$last"
exit {status}
""",
            encoding="utf-8",
        )
        path.chmod(0o755)
        return str(path)

    @property
    def called(self) -> list[str]:
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []


@pytest.fixture
def compilers(tmp_path: Path) -> Compilers:
    made = Compilers(tmp_path)
    for name in ("cc", "c++"):
        made.add(name)
    return made


def test_compilers_with_the_bug_get_the_option_for_both_languages(compilers: Compilers) -> None:
    assert options(compilers.environment, amx=False) == (BOTH, [])
    assert [line.split()[0] for line in compilers.called] == ["cc", "c++"]
    assert all(" -O3 -mamx-tile " in line for line in compilers.called)


def test_pip_cache_is_bypassed_only_on_processors_with_amx(compilers: Compilers) -> None:
    assert options(compilers.environment, amx=True) == (BOTH, ["--no-cache-dir"])
    for name in ("cc", "c++"):
        compilers.add(name, dropped=0)
    assert options(compilers.environment, amx=True) == ([], [])


def test_each_language_is_tested_with_its_own_compiler(compilers: Compilers) -> None:
    sound = compilers.add("my-cc", dropped=0)
    assert options({**compilers.environment, "CC": f"{sound} -m64"}, amx=False) == (BOTH[1:], [])
    assert compilers.called[0].startswith("my-cc -m64 ")
    in_cmake = {**compilers.environment, "CMAKE_ARGS": f"-DGGML_CUDA=on '-DCMAKE_CXX_COMPILER:STRING={sound}'"}
    assert options(in_cmake, amx=False) == (BOTH[:1], [])


@pytest.mark.parametrize(
    "flags",
    [{"CFLAGS": CURE, "CXXFLAGS": f"-g {CURE}"}, {"CMAKE_ARGS": "-DCMAKE_C_FLAGS=-fno-dse -DCMAKE_CXX_FLAGS=-fno-dse"}],
)
def test_user_who_has_set_the_option_gets_none(compilers: Compilers, flags: dict[str, str]) -> None:
    assert options({**compilers.environment, **flags}, amx=True) == ([], [])


def test_missing_compiler_gets_no_option(tmp_path: Path) -> None:
    assert options({"PATH": str(tmp_path)}, amx=True) == ([], [])
    assert options({"PATH": str(tmp_path), "CC": "no-such-cc", "CXX": "no-such-c++"}, amx=True) == ([], [])
    assert compiler("C", {"PATH": str(tmp_path)}) == []


@pytest.mark.parametrize("names", ["llama-cpp-python", "numpy,llama_cpp_python", ":all:"])
def test_prebuilt_wheel_gets_no_option(compilers: Compilers, names: str) -> None:
    assert prebuilt_only({"PIP_ONLY_BINARY": names})
    assert options({**compilers.environment, "PIP_ONLY_BINARY": names}, amx=True) == ([], [])
    assert compilers.called == []
    assert not prebuilt_only({"PIP_ONLY_BINARY": "numpy"}) and not prebuilt_only({})


def test_amx_is_read_from_the_processor_flags(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: amx_tile\nflags\t\t: fpu avx2\n", encoding="utf-8")
    assert not has_amx(cpuinfo)
    cpuinfo.write_text("flags\t\t: fpu amx_bf16 amx_tile avx2\n", encoding="utf-8")
    assert has_amx(cpuinfo)
    assert not has_amx(tmp_path / "none")


@ON_X86
def test_open_quote_is_reported_in_one_line() -> None:
    command = [sys.executable, compiler_options.__file__]
    ran = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "CMAKE_ARGS": "'-DX"}, capture_output=True, text=True)
    assert ran.returncode == 1 and ran.stderr.startswith("setup: a quote is left open") and ran.stderr.count("\n") == 1


@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("c++") is None, reason="cmake and a compiler")
def test_option_follows_the_user_s_flags_in_every_folder(tmp_path: Path) -> None:
    """In a project named like llama.cpp, since `CMAKE_PROJECT_llama.cpp_INCLUDE` adds the options."""
    include = Path(compiler_options.__file__).parents[1] / "backends" / "llama_cpp" / "build.cmake"
    (tmp_path / "ggml").mkdir()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.14)\nproject(llama.cpp C CXX)\nadd_subdirectory(ggml)\n", encoding="utf-8"
    )
    (tmp_path / "ggml" / "CMakeLists.txt").write_text("add_library(ggml a.c b.cpp)\n", encoding="utf-8")
    for name in ("a.c", "b.cpp"):
        (tmp_path / "ggml" / name).touch()
    build = tmp_path / "build"
    command: list[str | Path] = ["cmake", "-S", tmp_path, "-B", build, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    command += ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={include}", "-DCMAKE_CXX_FLAGS=-g2"]
    environment = os.environ | {"CFLAGS": "-g1", "CXXFLAGS": ""}
    subprocess.run([*command, BOTH[1]], env=environment, check=True, capture_output=True)
    found = {
        Path(each["file"]).name: each["command"].split()
        for each in json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    }
    assert "-g1" in found["a.c"] and CURE not in found["a.c"]
    assert "-g2" in found["b.cpp"] and CURE in found["b.cpp"]
