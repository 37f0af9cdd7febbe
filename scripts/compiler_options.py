"""Finds compiler options that llama.cpp needs because of a compiler bug. Used by scripts/setup.

    python3 scripts/compiler_options.py

prints two lines, `cmake …` and `pip …`, with the options for each program, if there are any. Findings go to standard
error.

The bug: GCC 12 drops stores that the instruction ldtilecfg reads (`tile_probe.c` explains it). llama.cpp then dies by
SIGSEGV on processors with AMX. `-fno-dse` avoids this, at no measurable cost. The decision depends on the compiler and
not on the processor, since a build may be for another machine; the probe gives the same answer on both. Only the use of
pip's cache depends on this processor: pip does not know with which options a cached wheel was compiled, and a wheel
without the option works on a processor without AMX, so it need not be compiled again.

The option goes to each language whose compiler needs it, through backends/llama_cpp/build.cmake, so that CMAKE_ARGS,
CFLAGS and CXXFLAGS stay as they are.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PROBE = Path(__file__).resolve().with_name("tile_probe.c")
CPUINFO = Path("/proc/cpuinfo")
CURE = "-fno-dse"
_DROPPED = 3  # exit status of the probe if stores are dropped
_PATIENCE = 60  # seconds that a compiler may take
# By language: the variables for compiler and flags, the name for -x, and the programs that CMake looks for, in order.
LANGUAGES = {
    "C": ("CC", "CFLAGS", "c", ("cc", "gcc", "clang")),
    "CXX": ("CXX", "CXXFLAGS", "c++", ("c++", "g++", "clang++")),
}


def compiler(language: str, environment: Mapping[str, str]) -> list[str]:
    """The command with which CMake will compile `language`; empty if there is none."""
    variable, _, _, usual = LANGUAGES[language]
    named = _defined(f"CMAKE_{language}_COMPILER", environment) or environment.get(variable, "")
    path = environment.get("PATH")
    words = shlex.split(named) or [name for name in usual if shutil.which(name, path=path)][:1]
    return words if words and shutil.which(words[0], path=path) else []


def needs_cure(language: str, environment: Mapping[str, str]) -> bool:
    """Whether the compiler, with the user's flags, drops stores. False if it cannot compile the probe."""
    _, flags_variable, name, _ = LANGUAGES[language]
    command = compiler(language, environment)
    flags = _defined(f"CMAKE_{language}_FLAGS", environment) or environment.get(flags_variable, "")
    if not command:
        return False
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "probe")
        command += [*shlex.split(flags), "-O3", "-mamx-tile", "-x", name, str(PROBE), "-o", str(program)]
        try:
            compiled = subprocess.run(command, env=environment, capture_output=True, timeout=_PATIENCE)
            return compiled.returncode == 0 and subprocess.run([program], timeout=_PATIENCE).returncode == _DROPPED
        except (OSError, subprocess.TimeoutExpired) as error:  # for example, a compiler for another machine
            print(f"setup: could not test whether the compiler has the bug with AMX: {error}", file=sys.stderr)
            return False


def prebuilt_only(environment: Mapping[str, str]) -> bool:
    """Whether pip was told to install a wheel without compiling."""
    names = re.split(r"[\s,]+", environment.get("PIP_ONLY_BINARY", ""))
    return any(re.sub("[-_.]+", "-", name).lower() in (":all:", "llama-cpp-python") for name in names)


def has_amx(cpuinfo: Path = CPUINFO) -> bool:
    """Whether this processor has AMX and the kernel reports it."""
    try:
        return re.search(r"^flags\b.*\bamx_tile\b", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE) is not None
    except OSError:
        return False


def options(environment: Mapping[str, str], amx: bool) -> tuple[list[str], list[str]]:
    """Find the options for CMake and those for pip. `amx`: whether this processor has AMX."""
    if prebuilt_only(environment):
        return [], []
    cured = [language for language in LANGUAGES if needs_cure(language, environment)]
    return [f"-DSPECPAIR_{language}_OPTIONS={CURE}" for language in cured], ["--no-cache-dir"] * bool(cured and amx)


def _defined(name: str, environment: Mapping[str, str]) -> str:
    """The last value that CMAKE_ARGS gives to the variable `name`, or ""."""
    found = ""
    for word in shlex.split(environment.get("CMAKE_ARGS", "")):
        if match := re.fullmatch(rf"-D{name}(?::\w+)?=(.*)", word):
            found = match.group(1)
    return found


def main() -> None:
    on_x86 = sys.platform == "linux" and platform.machine() == "x86_64"
    try:
        for_cmake, for_pip = options(os.environ, has_amx()) if on_x86 else ([], [])
    except ValueError as error:  # raised by shlex
        raise SystemExit(f"setup: a quote is left open in CMAKE_ARGS, CFLAGS, CXXFLAGS, CC or CXX: {error}") from None
    if for_cmake:
        print(f"setup: the compiler drops stores that AMX needs: llama.cpp gets {CURE}", file=sys.stderr)
    print(shlex.join(["cmake", *for_cmake]))
    print(shlex.join(["pip", *for_pip]))


if __name__ == "__main__":
    main()
