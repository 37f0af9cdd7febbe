"""Checks in a child process whether llama.cpp works on this machine, since a native crash cannot be caught.

    python -m backends.llama_cpp.selfcheck      scripts/setup runs this at its end

The child loads a small model and runs passes of 1, 2 and 5 tokens and a rollback. If a signal kills the child, or it
hangs, a second child runs without llama.cpp's extra buffer types (AMX, repacked weights), which is slower. A success is
stored in the user's cache folder, keyed by the library's files, its version and the processor, so that later loads only
read one small file. A failure is not stored, because the user is to repair it.
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
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from itertools import takewhile
from pathlib import Path

from backends.machine import cache_folder
from models import DEFAULT_DRAFT
from specpair.engines.backend import Entry
from specpair.engines.errors import BackendError, EngineCrash
from specpair.engines.load_options import LoadOptions
from specpair.extras import pip_install
from specpair.shared_files import replacing

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 120.0  # seconds for a child, which usually takes one second
_LOOK = 0.1  # seconds from one look at a child to the next
_PASSES = ((0, 1), (1, 2), (3, 5), (2, 5))  # start and width; the last pass rolls back 6 tokens
_FROM_OUTSIDE = ("SIGTERM", "SIGKILL", "SIGHUP")  # another process ended the child: that says nothing of llama.cpp
_PROCESSOR = re.compile(r"(vendor_id|cpu family|model|model name|stepping|flags|Features|CPU \w+|isa)\s*:")
_log = logging.getLogger("specpair.llama_cpp")

# From the model's path, and whether extra buffer types are used, to the command that starts a child.
Command = Callable[[Path, bool], Sequence[str]]


@dataclass(frozen=True, slots=True)
class ChildResult:
    """The result of a child process. `status`: exit status, minus the number of a signal, or None if it hung."""

    status: int | None
    last_line: str  # the last line of its standard error

    @property
    def crashed(self) -> bool:
        """Whether the child hung or a crash ended it; false if another process ended it."""
        return self.status is None or (self.status < 0 and self.signal not in _FROM_OUTSIDE)

    @property
    def signal(self) -> str:
        """The name of the signal that ended the child; empty if none did."""
        if self.status is None or self.status >= 0:
            return ""
        names = {each.value: each.name for each in signal.Signals}  # without the real-time signals
        return names.get(-self.status, f"signal {-self.status}")

    def __str__(self) -> str:
        if self.status is None:
            return "did not come to an end"
        return f"died by {self.signal}" if self.status < 0 else f"failed ({self.last_line})"


def extra_buffers(
    model: Path = DEFAULT_DRAFT,
    *,
    folder: Path | None = None,
    command: Command | None = None,
    timeout: float = TIMEOUT,
    cpuinfo: Path = Path("/proc/cpuinfo"),
) -> bool:
    """Whether llama.cpp may use its extra buffer types on this machine. Raises EngineCrash if it cannot run at all.

    True where nothing is known: `model` does not exist, no child can be started, or the child fails without a crash.
    `folder`: where results are stored; None: the user's cache folder.
    `command`: makes the command that starts a child.
    `timeout`: seconds for each child.
    `cpuinfo`: the system's file that describes the processor.
    """
    wheel, processor = _wheel(), _processor(cpuinfo)
    digest = hashlib.sha256(f"{wheel}\0{processor}".encode()).hexdigest()
    folder = folder or cache_folder()
    stored = folder and folder / f"llama_cpp-{digest[:24]}.json"
    works = None
    with suppress(OSError, ValueError, KeyError, TypeError):  # not stored, or damaged
        works = json.loads(stored.read_text(encoding="utf-8"))["extra_buffers"] if stored else None
    if not isinstance(works, bool):
        works = _try_extra_buffers(model, command or child_command, timeout, processor) if model.is_file() else None
        if works is None:
            return True
        if stored:
            _store_result(stored, works)
    if not works:
        _log.warning(
            "llama.cpp crashes on this processor with its extra buffer types, so the model is loaded without them, "
            "which is slower; %s, or repair it: %s",
            _cause("SIGSEGV", processor),
            repair_command(),
        )
    return works


def _try_extra_buffers(model: Path, command: Command, timeout: float, processor: str) -> bool | None:
    """Whether llama.cpp works with extra buffer types, tried in child processes; None if they are inconclusive.

    Raises EngineCrash if llama.cpp works neither with them nor without.
    """
    first = run_child(command(model, True), timeout)
    if first is None or first.status == 0:
        return None if first is None else True
    if not first.crashed:
        _log.info("the self-check of llama.cpp %s and is inconclusive", first)
        return None
    second = run_child(command(model, False), timeout)
    if second is not None and second.status == 0:
        return False
    within = f" within {timeout:g} s" if first.status is None else ""
    raise EngineCrash(
        f"llama.cpp cannot run on this machine: a child process that tried a small model {first}{within}; "
        f"{_cause(first.signal, processor)}. Repair it: {repair_command()}"
    )


def run_child(
    command: Sequence[str], timeout: float, waiting: Callable[[], object] = lambda: None
) -> ChildResult | None:
    """Run a child to its end; None if it cannot be started. Raises KeyboardInterrupt if Ctrl-C ended it.

    `waiting`: called now and then meanwhile. The child is killed if it raises.
    """
    python_path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    try:
        child = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        _log.info("a child of llama.cpp could not be started: %s", error)
        return None
    end = time.monotonic() + timeout
    with child:
        try:
            while (left := end - time.monotonic()) > 0:
                with suppress(subprocess.TimeoutExpired):
                    _, errors = child.communicate(timeout=min(left, _LOOK))
                    break
                waiting()
            else:
                return ChildResult(None, "")
        finally:
            child.kill()  # does nothing to one that has ended
    if child.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    return ChildResult(child.returncode, next(iter(errors.decode(errors="replace").splitlines()[-1:]), ""))


def child_command(model: Path, extra: bool) -> Sequence[str]:
    """The command of a child that tries `model`."""
    return module_command("backends.llama_cpp.selfcheck", str(model), "extra" if extra else "plain")


def module_command(module: str, *arguments: str) -> Sequence[str]:
    """The command that runs our module. `-P`: ignores modules of the same name in the working folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def no_core_file() -> None:
    """Disable the core file for a crash of this process."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def repair_command(option: str = "") -> str:
    """The command that compiles llama.cpp for this machine, with a workaround for a bug of GCC 12.

    `option`: a further one for CMake.
    """
    given = f"'-DLLAVA_BUILD=OFF {option}'" if option else "-DLLAVA_BUILD=OFF"
    options = "--force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python"
    published = _version().partition("+")[0]  # only our own wheels have a local version: there is no source of it
    return pip_install(
        f"{options} llama-cpp-python=={published}", f"CFLAGS=-fno-dse CXXFLAGS=-fno-dse CMAKE_ARGS={given}"
    )


def _cause(signal_name: str, processor: str) -> str:
    """The most likely cause of a crash by this signal on this processor, in words."""
    if signal_name == "SIGILL":
        return "most likely its wheel was compiled for another processor"
    if signal_name == "SIGSEGV" and re.search(r"\bamx_tile\b", processor):
        return "most likely GCC 12 compiled it without -fno-dse, which breaks AMX (docs/troubleshooting.md)"
    return "most likely its wheel does not fit this machine"


def _version() -> str:
    try:
        return metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        return "*"


def _wheel() -> str:
    """Identifies the installed library: its version, and the name, size and change time of each file."""
    package = importlib.util.find_spec("llama_cpp")  # an import would load the library
    if package is None or package.origin is None:
        return ""
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(package.origin).parent / "lib")
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    stats = ((file.name, file.stat()) for file in files if file.is_file())
    return "\n".join([_version(), str(folder), *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)])


def _processor(cpuinfo: Path) -> str:
    """The system's description of the first core, without values that change, such as the clock rate."""
    try:
        with cpuinfo.open(encoding="utf-8") as file:
            return "".join(line for line in takewhile(str.strip, file) if _PROCESSOR.match(line))
    except OSError:  # no procfs
        return platform.machine() + platform.version()


def _store_result(stored: Path, works: bool) -> None:
    try:
        stored.parent.mkdir(parents=True, exist_ok=True)
        with replacing(stored) as file:
            file.write(json.dumps({"extra_buffers": works, "version": _version()}).encode() + b"\n")
    except OSError as error:  # a folder that cannot be written: the next load checks again
        _log.debug("the result of llama.cpp's self-check is not stored: %s", error)


def main(arguments: Sequence[str]) -> int:
    """With arguments (model, extra or plain) act as the child, else run the check.

    Returns the exit status: 0 if llama.cpp works, 1 if not, with the reason on standard error.
    """
    try:
        if arguments:
            from backends.llama_cpp.backend import LlamaBackend  # loads the library

            no_core_file()
            options = LoadOptions(model=Path(arguments[0]), context_length=64)
            with closing(LlamaBackend(options, extra_buffers=arguments[1] == "extra")) as backend:
                for start, width in _PASSES:
                    backend.extend([Entry(0, start, list(range(2, 2 + width)), 0)])
        else:
            logging.basicConfig(format="setup: %(message)s", level=logging.INFO)
            extra_buffers()
            import_module("llama_cpp")  # after the child: here, a crash would leave no reason
    except BackendError as error:
        print(error if arguments else f"setup: {error}", file=sys.stderr)
        return 1
    except (ImportError, AttributeError, RuntimeError, OSError) as error:
        print(f"setup: llama.cpp does not load: {error}. Compile it: {repair_command()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
