"""Builds sdists and wheels of the three distributions into dist/ and checks them. `make dist` runs it.

    python scripts/release_check.py

`specpair-core` has the code. Its wheel is built from its sdist. Both must hold every file of the shipped packages that
git tracks, and no other. `specpair` has none, and requires the first. `specpair-lab` has the package `lab`, of whose
benchmarks only the code ships: they run in a checkout.

Then the wheels are installed into two empty environments in another folder: `specpair` without any extra, and
`specpair-core` with `client` alone, which must bring no llama.cpp. The commands of the first write a text there. So
does the drafter of the second, by lookup. Each must be the text that the commands of the checkout write. The first says
how to install the lab, gets it, and runs its commands.

The first environment gets a copy of the llama.cpp that is installed here, so that nothing is compiled, whatever options
llama.cpp was built with. pip installs all else that the wheel asks for.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
CODE, WHOLE, LAB = "specpair-core", "specpair", "specpair-lab"  # the distributions
WHOLE_PROJECT, LAB_PROJECT = ROOT / "deploy" / "packages" / "specpair", ROOT / "lab"
ENGINE = "llama_cpp_python"
LEFT_OUT = {  # files of packages that only a checkout needs
    *("backends/llama_cpp/build.cmake", "models/README.md"),
    *("lab/README.md", "lab/pyproject.toml"),
}
PROMPT, TOKENS = "def main():", 40
_PATIENCE = 120.0  # seconds until a verifier listens, and for loading the model and a text


def packages() -> list[str]:
    """The packages that pyproject.toml lists for the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [pattern.removesuffix("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]]


def expected() -> set[str]:
    """The files that must ship."""
    return _tracked(packages()) - LEFT_OUT


def expected_of_lab() -> set[str]:
    """The files that must ship with the lab: of its benchmarks, the code alone."""
    data = {name for name in _tracked(["lab/benchmarks"]) if not name.endswith(".py")}
    return _tracked(["lab"]) - LEFT_OUT - data


def _tracked(folders: Sequence[str]) -> set[str]:
    found = subprocess.check_output(["git", "ls-files", "-z", "--", *folders], cwd=ROOT, text=True)
    return set(found.split("\0")) - {""}


def shipped(path: Path, names: Sequence[str]) -> set[str]:
    """Those files in the sdist or wheel at `path` that are files of the packages `names`."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            inside = wheel.namelist()
    else:
        with tarfile.open(path) as sdist:
            inside = [member.name.partition("/")[2] for member in sdist if member.isfile()]
    return {name for name in inside if name.partition("/")[0] in names}


def faults(found: set[str], wanted: set[str]) -> list[str]:
    """The faults of the files `found` in an sdist or wheel that must have `wanted`."""
    return [
        *(f"{name} is missing: package-data in pyproject.toml decides which files ship" for name in wanted - found),
        *(f"{name} is in it, but git does not track it" for name in found - wanted),
    ]


def build() -> None:
    """Build the sdist of each distribution, and the wheel from it, into dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    _build(ROOT)
    with TemporaryDirectory() as folder:  # a build leaves files beside its pyproject.toml
        for name, project in ((WHOLE, WHOLE_PROJECT), (LAB, LAB_PROJECT)):
            _build(Path(shutil.copytree(project, Path(folder, name))))


def _build(project: Path) -> None:
    run: list[str | Path] = [sys.executable, "-m", "build", "--outdir", DIST]
    subprocess.run(run, cwd=project, check=True, stdout=subprocess.DEVNULL)


def built(distribution: str) -> list[Path]:
    """The wheel and the sdist of a distribution in dist/."""
    return sorted(DIST.glob(f"{distribution.replace('-', '_')}-[0-9]*"), key=lambda path: path.suffix != ".whl")


def install(environment: Path, *wanted: str) -> None:
    """Make an environment, install the requirements with pip, and copy llama.cpp for `specpair`."""
    venv.create(environment, with_pip=True)
    if any(each.startswith(f"{WHOLE} ") for each in wanted):
        _copy_engine(environment)
    _pip_install(environment, *wanted)


def _pip_install(environment: Path, *wanted: str) -> None:
    python = _path("scripts", environment) / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], cwd=environment.parent, check=True)


def _copy_engine(environment: Path) -> None:
    for file in files(ENGINE) or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            copy = _path("platlib", environment) / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), copy)


def text_of(verifying: Path, drafting: Path, folder: Path, *flags: str) -> str:
    """The greedy text of the command `verifier` of one environment and of `drafter` of another, started in `folder`.

    `flags`: further ones of the drafter.
    """
    own = ("VERIFIER_", "DRAFTER_", "PYTHONPATH")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    variables["VERIFIER_DETERMINISTIC"] = "1"  # no near-ties
    with _verifier(_path("scripts", verifying), folder, variables) as url:
        flags = ("--verifier", url, "--prompt", PROMPT, "--max-tokens", str(TOKENS), "--json", *flags)
        written = subprocess.check_output(
            [_path("scripts", drafting) / "drafter", *flags], cwd=folder, env=variables, text=True, timeout=_PATIENCE
        )
    return str(json.loads(written)["text"])


@contextmanager
def _verifier(commands: Path, folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Serve with the command `verifier` while the block lasts. Yields its URL when something listens there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([commands / "verifier", "--port", str(port)], cwd=folder, env=variables) as process:
        try:
            end = time.monotonic() + _PATIENCE
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"dist: the verifier of {commands} does not listen")
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _path(kind: str, environment: Path) -> Path:
    """A folder of an environment, by its name in sysconfig."""
    return Path(sysconfig.get_path(kind, "venv", {"base": str(environment), "platbase": str(environment)}))


def main() -> None:
    wanted, names = expected(), packages()
    build()
    for path in built(CODE):
        if wrong := faults(shipped(path, names), wanted):
            raise SystemExit("\n".join(f"dist: {path.name}: {fault}" for fault in wrong))
        print(f"dist: {path.relative_to(ROOT)}, {path.stat().st_size / 1e6:.1f} MB: {len(wanted)} files, as tracked")
    for path in built(WHOLE):
        if found := shipped(path, names):
            raise SystemExit(f"dist: {path.name} has code: {sorted(found)[0]}")
        print(f"dist: {path.relative_to(ROOT)}: no code, as it should be")
    lab_wheel, _ = built(LAB)
    wanted_of_lab = expected_of_lab()
    if wrong := faults(shipped(lab_wheel, ["lab"]), wanted_of_lab):
        raise SystemExit("\n".join(f"dist: {lab_wheel.name}: {fault}" for fault in wrong))
    print(f"dist: {lab_wheel.relative_to(ROOT)}: {len(wanted_of_lab)} files, as tracked")
    (code, _), (whole, _) = built(CODE), built(WHOLE)
    here = text_of(Path(sys.prefix), Path(sys.prefix), ROOT)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        all_of_it, client = folder / "whole", folder / "client"
        install(all_of_it, f"{WHOLE} @ {whole.as_uri()}", f"{CODE} @ {code.as_uri()}")
        _compare(f"{whole.name}, installed in another folder,", text_of(all_of_it, all_of_it, folder), here)
        check_lab(all_of_it, lab_wheel)
        install(client, f"{CODE}[client] @ {code.as_uri()}")
        if list(_path("platlib", client).glob("llama_cpp*")):
            raise SystemExit(f"dist: {CODE}[client] installs llama.cpp")
        subprocess.run([_path("scripts", client) / "drafter", "--help"], check=True, stdout=subprocess.DEVNULL)
        looked_up = text_of(all_of_it, client, folder, "--backend", "ngram", "--mode", "remote")
        _compare(f"{CODE}[client], without llama.cpp,", looked_up, here)


def check_lab(environment: Path, wheel: Path) -> None:
    """Install the lab. Raise SystemExit unless its command names the missing lab before, and runs afterwards."""
    drafter = _path("scripts", environment) / "drafter"
    run: list[str | Path] = [drafter, "bench", "--help"]
    before = subprocess.run(run, cwd=environment.parent, capture_output=True, text=True, check=False)
    if before.returncode != 1 or f"pip install {LAB}" not in before.stderr:
        raise SystemExit(f"dist: without the lab, `drafter bench` says: {before.stderr}")
    _pip_install(environment, f"{LAB} @ {wheel.as_uri()}")
    simulate: list[str | Path] = [drafter.with_name("specpair"), "simulator", "init"]
    for command in (run, simulate):
        subprocess.run(command, cwd=environment.parent, check=True, stdout=subprocess.DEVNULL)
    print(f"dist: {wheel.name}, installed beside it, adds its commands")


def _compare(what: str, there: str, here: str) -> None:
    """Raise SystemExit unless an installation's text equals the text of this checkout."""
    if there != here or not here:
        raise SystemExit(f"dist: {what} writes another text than this checkout:\n{there}\n---\n{here}")
    print(f"dist: {what} writes the text of this checkout")


if __name__ == "__main__":
    main()
