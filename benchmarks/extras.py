"""Packages that one measurement or another needs beyond requirements.txt, asked for before anything is measured."""

import importlib.util
import sys

_LISTS = {
    "httpx": "requirements-benchmarks.txt",
    "matplotlib": "requirements-benchmarks.txt",
    "torch": "requirements-torch.txt",
    "transformers": "requirements-torch.txt",
    "llama_cpp": "requirements.txt",
}


def need(*packages: str) -> None:
    """End the program with status 2, and one line that says what to install, unless all of these are there."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        lists = " ".join(f"-r {file}" for file in dict.fromkeys(_LISTS[name] for name in missing))
        print(
            f"not installed: {', '.join(missing)}; install with: {sys.executable} -m pip install {lists}",
            file=sys.stderr,
        )
        raise SystemExit(2)
