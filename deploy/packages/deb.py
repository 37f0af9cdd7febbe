"""Builds a .deb for Debian or Ubuntu: both ends in an environment of their own, units, settings, completions, manuals.

    python3 -m deploy.packages.deb [--engine WHEEL] [--python PYTHON] [--output FOLDER]

Needs what `apt install python3-pip build-essential` brings. The package is for the Python of the distribution that it
is built on. Without `--engine`, llama.cpp is compiled for the kinds of processors that it knows, of which the best is
chosen when it runs: 10 minutes on 2 cores. `deploy/packages/trials/deb.sh` builds, installs and removes the package in
clean roots.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import tomllib
import zipfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = Path(__file__).resolve().parent / "debian"
UNITS = ROOT / "deploy" / "systemd"
HOME = Path("opt/specpair")
COMMANDS = ("drafter", "verifier", "specpair")
SETTINGS = tuple(sorted(path.name for path in DEBIAN.glob("*.env")))  # in /etc/specpair, each a unit's
SCRIPTS = ("postinst", "prerm", "postrm")
MARKER = "debian-package"  # in the environment: by it, specpair/extras.py names a command that installs there
PROGRAMS = {"dpkg-deb": "dpkg", "c++": "build-essential", "make": "build-essential"}  # and Debian's packages of them
# -fno-dse: scripts/compiler_options.py says why.
OPTIONS = (
    f"-DLLAVA_BUILD=OFF '-DCMAKE_PROJECT_llama.cpp_INCLUDE={ROOT}/backends/llama_cpp/build.cmake' "
    "-DSPECPAIR_C_OPTIONS=-fno-dse -DSPECPAIR_CXX_OPTIONS=-fno-dse "
    "-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
)


def version() -> str:
    """The project's."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def control(architecture: str, python: tuple[int, int], size: int) -> str:
    """The control file. `python`: the version that the environment was made with. `size`: KiB when installed."""
    major, minor = python
    values = {
        "version": version(),
        "architecture": architecture,
        "size": str(size),
        "python": f"{major}.{minor}",
        "next_python": f"{major}.{minor + 1}",
    }
    text = (DEBIAN / "control.in").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def conffiles() -> str:
    """The files that dpkg keeps as the user has changed them."""
    return "".join(f"/etc/specpair/{name}\n" for name in SETTINGS)


def unit(text: str) -> str:
    """A unit of deploy/systemd for where the package has the environment."""
    return text.replace("/opt/specpair/.venv/bin/", f"/{HOME}/bin/")


def build(engine: Path | None, python: str, output: Path) -> Path:
    """Build the package. Returns its path.

    Raises SystemExit where a program is missing, subprocess.CalledProcessError where one fails.
    """
    if wanting := missing(python):
        raise SystemExit(f"deb: packages are missing to build with: apt install {' '.join(wanting)}")
    with TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        _environment(tree, engine or _engine(Path(temporary), python), python)
        _commands(tree)
        _files(tree)
        (tree / "DEBIAN").mkdir()
        versioned = _printed(python, "-c", "import sys; print(*sys.version_info[:2])").split()
        size = int(_printed("du", "-sk", str(tree)).split()[0])
        described = control(
            _printed("dpkg", "--print-architecture").strip(), (int(versioned[0]), int(versioned[1])), size
        )
        _write(tree / "DEBIAN" / "control", described)
        _write(tree / "DEBIAN" / "conffiles", conffiles())
        for name in SCRIPTS:
            _write(tree / "DEBIAN" / name, (DEBIAN / name).read_text(encoding="utf-8"), 0o755)
        output.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, output], check=True)
    return next(output.glob(f"specpair_{version()}_*.deb"))


def missing(python: str) -> list[str]:
    """Debian's packages that are missing to build with; `python`: the distribution's Python."""
    wanting = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        wanting.add("python3-pip")
    return sorted(wanting)


def changelog(day: datetime) -> str:
    """Debian's own changelog, which names the version; what changed stands in the project's, beside it."""
    text = (DEBIAN / "changelog.in").read_text(encoding="utf-8")
    return text.replace("@version@", version()).replace("@day@", format_datetime(day))


def _engine(folder: Path, python: str) -> Path:
    """The wheel of llama.cpp, compiled for all kinds of processors."""
    [wanted] = (line for line in _pins() if line.startswith("llama-cpp-python=="))
    command = [python, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir", "--no-binary", "llama-cpp-python"]
    subprocess.run([*command, "-w", folder, wanted], env=os.environ | {"CMAKE_ARGS": OPTIONS}, check=True)
    return next(folder.glob("llama_cpp_python-*.whl"))


def _pins() -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines())
    return [line for line in lines if line]


def _environment(tree: Path, engine: Path, python: str) -> None:
    """The environment with all packages in the versions that were tested together, as if it were in its place."""
    home = tree / HOME
    subprocess.run([python, "-m", "venv", "--without-pip", home], check=True)
    pip = [python, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet", "--no-compile"]
    with TemporaryDirectory() as folder:
        pins = Path(folder) / "requirements.txt"
        pins.write_text("\n".join(line for line in _pins() if not line.startswith("llama-cpp-python")))
        subprocess.run([*pip, "-r", pins, engine], check=True)
    subprocess.run([*pip, "--no-deps", ROOT], check=True)
    [packages] = (home / "lib").glob("python*/site-packages")
    _arrange(engine, packages)
    for script in [*(home / "bin").iterdir(), home / "pyvenv.cfg"]:
        if script.is_file() and not script.is_symlink():
            data = script.read_bytes()
            script.write_bytes(data.replace(str(tree).encode(), b""))
    _write(home / MARKER, "This environment is part of the Debian package specpair.\n")
    for path in packages.glob("specpair_core-*.dist-info/direct_url.json"):
        path.unlink()  # it names the folder where this was built
    for path in packages.rglob("*.so*"):
        path.chmod(0o644)


def _arrange(engine: Path, packages: Path) -> None:
    """Put the files for each kind of processor beside the library, and leave out its copies for programs in C."""
    for path in (packages / "bin").glob("libggml-*.so"):
        path.rename(packages / "llama_cpp" / "lib" / path.name)
    with zipfile.ZipFile(engine) as wheel:
        top = {name.partition("/")[0] for name in wheel.namelist()}
    for name in top & {"bin", "lib", "include"}:
        shutil.rmtree(packages / name)


def _commands(tree: Path) -> None:
    """Links in /usr/bin, completions and manual pages, written by the commands themselves."""
    places = {
        "bash": "usr/share/bash-completion/completions/{}",
        "zsh": "usr/share/zsh/vendor-completions/_{}",
        "fish": "usr/share/fish/vendor_completions.d/{}.fish",
    }
    (tree / "usr/bin").mkdir(parents=True)
    manuals = tree / "usr/share/man/man1"
    manuals.mkdir(parents=True)
    python, script = tree / HOME / "bin" / "python", "import sys; from {}.__main__ import main; sys.exit(main())"
    for name in COMMANDS:
        module = {"drafter": "drafter_client", "verifier": "verifier_server"}.get(name, name)
        run: list[str | Path] = [python, "-P", "-B", "-c", script.format(module)]
        (tree / "usr/bin" / name).symlink_to(f"/{HOME}/bin/{name}")
        subprocess.run([*run, "man", manuals], check=True)
        for shell, place in places.items():
            path = tree / place.format(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            written = subprocess.check_output([*run, "completion", shell], text=True)
            _write(path, written)
    for page in manuals.iterdir():
        _compress(page)


def _files(tree: Path) -> None:
    """Units, settings, and what Debian wants to read of a package."""
    for path in UNITS.rglob("*"):
        if path.is_file():
            _write(tree / "lib/systemd/system" / path.relative_to(UNITS), unit(path.read_text(encoding="utf-8")))
    for name in SETTINGS:
        _write(tree / "etc/specpair" / name, (DEBIAN / name).read_text(encoding="utf-8"), 0o600)
    (tree / "etc/specpair").chmod(0o755)
    documents = tree / "usr/share/doc/specpair"
    _write(documents / "copyright", (DEBIAN / "copyright").read_text(encoding="utf-8"))
    _write(documents / "changelog", changelog(datetime.now(UTC)))
    _write(documents / "CHANGELOG.md", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    for name in ("changelog", "CHANGELOG.md"):
        _compress(documents / name)
    _write(tree / "usr/share/lintian/overrides/specpair", (DEBIAN / "lintian-overrides").read_text(encoding="utf-8"))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _compress(path: Path) -> None:
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()


def _printed(*command: str) -> str:
    return subprocess.check_output(command, text=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds a .deb of specpair.")
    parser.add_argument("--engine", type=Path, help="a wheel of llama.cpp that was built with GGML_BACKEND_DL before")
    parser.add_argument("--python", default="/usr/bin/python3", help="the distribution's (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="(default: dist/)")
    options = parser.parse_args()
    print(build(options.engine and options.engine.absolute(), options.python, options.output))


if __name__ == "__main__":
    main()
