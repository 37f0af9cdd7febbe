"""Fetches a wheel of llama-cpp-python that fits this machine, so that nothing is compiled. Used by scripts/setup.

    python3 scripts/prebuilt.py .venv/bin/python FOLDER

prints the path of the wheel, or nothing where llama.cpp is to be compiled. What was decided goes to standard error. pip
decides which wheel fits. The page is SPECPAIR_WHEELS, an address or a folder for pip's --find-links; if that is empty,
no page is asked. The default is the page that .github/workflows/wheels.yml makes, of the repository on GitHub that this
clone comes from.
"""

import os
import re
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = "https://{owner}.github.io/{name}/wheels/"
PATIENCE = 5.0  # seconds in which a page has to answer; pip would try for 49 s
_DRIVERS = ((580, "cu13"), (525, "cu12"))  # the oldest driver for each CUDA


def page() -> str:
    """The page of wheels; empty if there is none."""
    if (given := os.environ.get("SPECPAIR_WHEELS")) is not None:
        return given
    origin = output("git", "-C", str(ROOT), "remote", "get-url", "origin")
    found = re.fullmatch(r".*\bgithub\.com[:/](?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(\.git)?/?", origin)
    return PAGE.format(owner=found["owner"].lower(), name=found["name"]) if found else ""


def trouble(address: str, patience: float = PATIENCE) -> str:
    """Why pip cannot read this page; empty if the page answers, or is a folder."""
    if not re.match("https?:", address):
        return "" if Path(address.removeprefix("file://")).exists() else "does not exist"
    told: list[str] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(address, timeout=patience):
                told.append("")
        except urllib.error.HTTPError as error:
            told.append(f"answers with status {error.code}")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            # Some Pythons have no certificates of their own, but pip brings some.
            told.append("" if isinstance(reason, ssl.SSLCertVerificationError) else f"does not answer ({reason})")

    asking = threading.Thread(target=ask, daemon=True)  # a search for the host's address has no limit of its own
    asking.start()
    asking.join(patience)
    return told[0] if told else f"does not answer within {patience:g} s"


def versions(pin: str, driver: str) -> list[str]:
    """The versions to look for, the best first. `driver`: that of an NVIDIA GPU, empty if there is none."""
    number = (ROOT / "scripts" / "wheel_number").read_text(encoding="utf-8").strip()
    major = int(found[0]) if (found := re.match(r"\d+", driver)) else 0
    return [*(f"{pin}+{cuda}.specpair.{number}" for oldest, cuda in _DRIVERS if major >= oldest), pin]


def fetch(python: str, folder: Path, address: str, wanted: list[str]) -> Path | None:
    """Download the first of these versions that the page has for this machine; None if it has none."""
    for earlier in folder.glob("llama_cpp_python-*.whl"):
        earlier.unlink()
    for version in wanted:
        command = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
        command += ["--only-binary", ":all:", "--timeout", f"{PATIENCE:g}", "--retries", "1", "--dest", str(folder)]
        command += ["--find-links", address, f"llama-cpp-python=={version}"]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode == 0:
            return next(folder.glob("llama_cpp_python-*.whl"), None)
    return None


def main(python: str, folder: Path) -> None:
    [pin] = re.findall(r"^llama-cpp-python==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M)
    driver = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    address = page()
    if not address:
        return
    if why := trouble(address):
        print(f"setup: the page of wheels {why}: {address}", file=sys.stderr)
    elif wheel := fetch(python, folder, address, versions(pin, driver)):
        print(f"setup: llama.cpp is not compiled: {wheel.name} from {address}", file=sys.stderr)
        if driver and "+cu" not in wheel.name:
            print("setup: this wheel does not use the NVIDIA GPU: CMAKE_ARGS=-DGGML_CUDA=on would", file=sys.stderr)
        print(wheel)
    else:
        print(f"setup: no wheel of llama-cpp-python {pin} for this machine: {address}", file=sys.stderr)


def output(*command: str) -> str:
    """What a program prints; empty if it is not there or fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
