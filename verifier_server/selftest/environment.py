"""What a report says of the machine: hardware, system, packages, and what the vendors' programs print."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from backends.machine import available_bytes, cores, processor
from specpair.extras import installed_version
from verifier_server.selftest.printed import names_secret

PACKAGES = (
    *("numpy", "torch", "transformers", "tokenizers", "safetensors", "accelerate"),
    *("transformers-neuronx", "torch-neuronx", "neuronx-cc", "libneuronxla", "nki"),
    *("llama-cpp-python", "gguf", "mlx", "mlx-lm"),
)
_PROGRAMS: tuple[Sequence[str], ...] = (
    ("neuron-ls", "--json-output"),
    ("dpkg-query", "-W", "aws-neuronx-*"),
    ("rpm", "-qa", "aws-neuronx*"),
    ("nvidia-smi",),
)
_NEURON_TOOLS = "/opt/aws/neuron/bin"  # often not on the path
_TIMEOUT = 20.0  # seconds for a program
_COMMAND = re.compile(r"command|args|cmd", re.IGNORECASE)  # in the name of an entry: what a process was started with
_ROOT = Path(__file__).resolve().parents[2]


def environment() -> Iterator[str]:
    """Lines about this machine."""
    yield f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    yield f"specpair {installed_version()}{_revision()}, Python {platform.python_version()} ({sys.executable})"
    system = _first("/etc/os-release", r'PRETTY_NAME="?([^"]*)')
    yield f"{platform.platform()}, {system or 'no os-release'}"
    yield f"{processor()}, {cores()} cores"
    memory = _first("/proc/meminfo", r"MemTotal:\s*(\d+)")
    total = "" if memory is None else f" of {int(memory) / 2**20:.1f}"
    yield f"{available_bytes() / 2**30:.1f}{total} GiB of memory available"
    machine = _first("/sys/devices/virtual/dmi/id/product_name", "(.+)")
    driver = _first("/sys/module/neuron/version", "(.+)")
    yield f"machine: {machine or 'unknown'}; neuron driver: {driver or 'none'}"
    yield ""
    for name in PACKAGES:
        yield f"{name:22} {_installed(name) or '-'}"
    yield ""
    for name in sorted(os.environ):
        if name.startswith("NEURON_"):
            yield f"{name}={'(hidden)' if names_secret(name) else os.environ[name]}"
    for command in _PROGRAMS:
        yield from _output(command, os.environ.get("PATH", os.defpath))


def _revision() -> str:
    """The commit of this clone; empty if it is none."""
    if not (_ROOT / ".git").exists():  # git would look in the folders above
        return ""
    lines = list(_output(("git", "-C", str(_ROOT), "describe", "--always", "--dirty"), os.environ.get("PATH", "")))
    return f" at {lines[-1]}" if lines and not lines[-1].startswith("(") else ""


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _first(path: str, pattern: str) -> str | None:
    """The first group of the first line of a file that matches; None if there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((found[1].strip() for line in lines if (found := re.match(pattern, line))), None)


def _output(command: Sequence[str], path: str) -> Iterator[str]:
    """What a program prints; nothing if it is not installed, or has nothing to say."""
    program = shutil.which(command[0], path=os.pathsep.join([path, _NEURON_TOOLS]))
    if program is None:
        return
    try:
        done = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        yield from ("", f"$ {' '.join(command)}", f"(no end within {_TIMEOUT:g} s)")
        return
    except OSError as error:
        yield from ("", f"$ {' '.join(command)}", f"(cannot be started: {error.strerror})")
        return
    printed = done.stdout.decode(errors="replace").strip()
    if command[0] in ("dpkg-query", "rpm") and not printed:  # no such package, which is no news
        return
    if "--json-output" in command and done.returncode == 0:
        printed = _without_commands(printed)
    errors = done.stderr.decode(errors="replace").strip() if done.returncode else ""
    status = f"(exit status {done.returncode})" if done.returncode else ""
    yield from ("", f"$ {' '.join(command)}", *(each for each in (printed, errors, status) if each))


def _without_commands(printed: str) -> str:
    """JSON whose command lines are cut down to the program: the rest may hold a key or a prompt."""
    try:
        found = json.loads(printed)
    except ValueError:
        return "(no JSON)"

    def cut(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: cut(each, key) for key, each in value.items()}
        if _COMMAND.search(name):
            words = str(value[0] if isinstance(value, list) and value else value or "").split()
            return f"{words[0]} …" if words else ""
        return [cut(each, name) for each in value] if isinstance(value, list) else value

    return json.dumps(cut(found), ensure_ascii=False, indent=1)
