"""Whether llama.cpp can compute on this machine, tried in a child process: a native crash raises nothing to catch.

    python -m backends.llama_cpp.selfcheck      what scripts/setup runs at its end

The child loads a small model and runs passes of 1, 2 and 5 tokens and a rollback. If a signal ends it, or it hangs, it
is tried once more without llama.cpp's extra buffer types (AMX, repacked weights), which cost speed to give up. What
worked is remembered in the user's cache folder, by the library's files, its version and the processor, so that later
loads read one small file. A failure is not remembered: it is to be mended.
"""

import hashlib
import importlib.util
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from backends.base import BackendError, EngineCrash, Entry, LoadOptions
from backends.machine import cache_folder

ROOT = Path(__file__).resolve().parents[2]
SMALL_MODEL = ROOT / "models" / "stdlib-draft-q8_0.gguf"  # by path: `models` may be a module of the user's
PATIENCE = 120.0  # seconds; a second is usual
_PASSES = ((0, 1), (1, 2), (3, 5), (2, 5))  # start and width; the last one takes back 6 tokens
_NOT_ITS_OWN = ("SIGTERM", "SIGKILL", "SIGHUP")  # somebody ended it: that says nothing
_PROCESSOR = re.compile(r"(vendor_id|cpu family|model|model name|stepping|flags|Features|CPU \w+|isa)\s*:")
_log = logging.getLogger("specpair.llama_cpp")

Command = Callable[[Path, bool], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: a status, or minus a signal's number as `subprocess` has it, or None if it hung."""

    status: int | None
    words: str  # the last line on its standard error

    @property
    def crashed(self) -> bool:
        return self.status is None or (self.status < 0 and self.signal not in _NOT_ITS_OWN)

    @property
    def signal(self) -> str:
        """The name of the signal that ended it; empty if none did."""
        if self.status is None or self.status >= 0:
            return ""
        names = {each.value: each.name for each in signal.Signals}  # which lacks those for real time
        return names.get(-self.status, f"signal {-self.status}")

    def __str__(self) -> str:
        if self.status is None:
            return "did not come to an end"
        return f"died by {self.signal}" if self.status < 0 else f"failed ({self.words})"


def extra_buffers(
    model: Path = SMALL_MODEL,
    *,
    folder: Path | None = None,
    command: Command | None = None,
    patience: float = PATIENCE,
    cpuinfo: Path = Path("/proc/cpuinfo"),
) -> bool:
    """Whether llama.cpp may use its extra buffer types on this machine: True is the usual answer.

    The trial is skipped where `model` does not exist or no child can be started, and decides nothing where the child
    fails in good order. `folder`: of what is remembered; by default the user's cache. Raises EngineCrash.
    """
    wheel, processor = _wheel(), _processor(cpuinfo)
    folder = folder or cache_folder()
    kept = folder and folder / f"llama_cpp-{_digest(wheel, processor)}.json"
    answer = _remembered(kept) if kept else None
    if answer is None:
        if not model.is_file():
            return True
        answer = _tried(model, command or child_command, patience, processor)
        if answer is None:
            return True
        if kept:
            _remember(kept, answer)
    if not answer:
        _log.warning(
            "llama.cpp crashes on this processor with its extra buffer types, so the model is loaded without them, "
            "which is slower; %s, or mend it: %s",
            _cause("SIGSEGV", processor),
            mend(),
        )
    return answer


def _tried(model: Path, command: Command, patience: float, processor: str) -> bool | None:
    """Whether extra buffer types work; None where that remains open. Raises EngineCrash."""
    first = _run(command(model, True), patience)
    if first is None or not first.crashed:
        if first is not None and first.status != 0:
            _log.info("the trial of llama.cpp %s, which says nothing of the processor", first)
        return True if first is not None and first.status == 0 else None
    second = _run(command(model, False), patience)
    if second is not None and second.status == 0:
        return False
    within = f" within {patience:g} s" if first.status is None else ""
    raise EngineCrash(
        f"llama.cpp cannot run on this machine: a child process that tried a small model {first}{within}; "
        f"{_cause(first.signal, processor)}. Mend it: {mend()}"
    )


def _run(command: Sequence[str], patience: float) -> Ended | None:
    """None where no child can be started."""
    here = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": here},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return Ended(None, "")
    except OSError as error:
        _log.info("llama.cpp could not be tried: %s", error)
        return None
    if done.returncode == -signal.SIGINT:  # Ctrl-C goes to both
        raise KeyboardInterrupt
    return Ended(done.returncode, next(iter(done.stderr.decode(errors="replace").splitlines()[-1:]), ""))


def child_command(model: Path, extra: bool) -> Sequence[str]:
    """What tries `model`. `-P`: the working folder may have modules of our names."""
    return [sys.executable, "-P", "-m", "backends.llama_cpp.selfcheck", str(model), "extra" if extra else "plain"]


def try_model(model: Path, extra: bool) -> None:
    """What the child does. Raises BackendError; or a signal ends the process."""
    from backends.llama_cpp.backend import LlamaBackend

    with closing(LlamaBackend(LoadOptions(model=model, context_length=64), extra_buffers=extra)) as backend:
        for start, width in _PASSES:
            backend.extend([Entry(0, start, list(range(2, 2 + width)), 0)])


def mend() -> str:
    """The command that compiles llama.cpp anew for this processor, without the fault of GCC 12."""
    flags = "CFLAGS=-fno-dse CXXFLAGS=-fno-dse CMAKE_ARGS=-DLLAVA_BUILD=OFF"
    options = "--force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python"
    return f"{flags} {sys.executable} -m pip install {options} llama-cpp-python=={_version()}"


def _cause(signal_name: str, processor: str) -> str:
    if signal_name == "SIGILL":
        return "most likely its wheel was compiled for another processor"
    if signal_name == "SIGSEGV" and re.search(r"\bamx_tile\b", processor):
        return "most likely GCC 12 compiled it without -fno-dse, which breaks AMX (README: troubleshooting)"
    return "most likely its wheel does not fit this machine"


def _package() -> Path | None:
    """The folder of llama_cpp, which is not imported for that: importing loads the library."""
    spec = importlib.util.find_spec("llama_cpp")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _version() -> str:
    package = _package()
    text = "" if package is None else (package / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    return found.group(1) if found else "*"


def _wheel() -> str:
    """The version, and name, size and time of each of the library's files."""
    package = _package()
    if package is None:
        return ""
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or package / "lib")
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    stats = ((file.name, file.stat()) for file in files if file.is_file())
    return "\n".join([_version(), str(folder), *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)])


def _processor(cpuinfo: Path) -> str:
    """What the system says of the first core, without what changes from moment to moment."""
    lines = []
    try:
        with cpuinfo.open(encoding="utf-8") as file:
            for line in file:
                if not line.strip():
                    break
                if _PROCESSOR.match(line):
                    lines.append(line)
    except OSError:  # no procfs
        lines = [platform.machine(), platform.version()]
    return "".join(lines)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _remembered(kept: Path) -> bool | None:
    try:
        said = json.loads(kept.read_text(encoding="utf-8"))["extra_buffers"]
    except (OSError, ValueError, KeyError, TypeError):  # not there, or not ours: it is tried again
        return None
    return said if isinstance(said, bool) else None


def _remember(kept: Path, answer: bool) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, suffix=".part", delete=False) as part:
            part.write(json.dumps({"extra_buffers": answer, "version": _version()}) + "\n")
        os.replace(part.name, kept)
    except OSError as error:  # a folder that cannot be written: the next load tries again
        _log.debug("the trial of llama.cpp is not remembered: %s", error)


def main(arguments: Sequence[str]) -> int:
    """The child, if a model is named. Exit status: 0 it works, 1 it does not, as standard error says."""
    try:
        if arguments:
            with suppress(ImportError, OSError, ValueError):  # a core file of a trial serves nobody
                import resource

                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try_model(Path(arguments[0]), extra=arguments[1] == "extra")
        else:
            logging.basicConfig(format="setup: %(message)s", level=logging.INFO)
            extra_buffers()
    except BackendError as error:
        print(error if arguments else f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
