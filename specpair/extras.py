"""The installed version, and the extra of pyproject.toml that installs a missing package."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

DISTRIBUTION = "specpair-core"  # which has the code and the extras; `specpair` requires it, and has neither
_FOLDER = Path(__file__).resolve().parent.parent
EXTRAS = {  # the modules that each extra brings; what all parts need is no extra
    "client": ("httpx", "httpcore", "httptools", "socksio", "prompt_toolkit", "jinja2"),
    "server": (
        *("fastapi", "fastapi_offline", "starlette", "uvicorn", "httptools", "uvloop"),
        *("prometheus_client", "jinja2", "click", "cryptography", "ifaddr", "segno"),
    ),
    "llama": ("llama_cpp", "gguf"),
    "torch": ("torch", "transformers", "tokenizers", "safetensors", "accelerate"),
    "mlx": ("mlx", "mlx_lm"),
    "vllm": ("vllm",),
    "sglang": ("httpx", "tokenizers"),
    "hub": ("huggingface_hub",),
    "lan": ("zeroconf",),
}
LAB = "specpair-lab"  # the distribution of the lab


def installed_version() -> str:
    """The version that pip installed; a note in words for a checkout that was never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed: run from a checkout)"


class MissingExtra(ModuleNotFoundError):
    """A package of an extra is not installed. The message says how to install it."""


@contextmanager
def extras_named(first: str = "") -> Iterator[None]:
    """In this context, importing a missing package of an extra raises MissingExtra.

    `first`: the extra that is named if several would bring it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        for extra in sorted(EXTRAS, key=lambda each: each != first):
            if missing in EXTRAS[extra]:
                raise MissingExtra(f"{missing} is not installed: {installing(extra)}", name=missing) from error
        raise


def show_missing_extras() -> None:
    """From now on, a program that ends for want of a package of an extra says in one line how to install it."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            with extras_named():
                raise error
        except MissingExtra as missing:
            print(missing, file=sys.stderr)
        except BaseException:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = show


# An environment of another tool than pip has no pip of its own. By the file that the tool leaves in the environment:
# the command that installs there.
_UV = "{variables}uv pip install --python {python} {what}"
_TOOLS = {
    "pipx_metadata.json": "{variables}pipx runpip {name} install {what}",
    "uv-receipt.toml": _UV,
}


def installing(extra: str, folder: Path = _FOLDER, environment: Path = Path(sys.prefix)) -> str:
    """The command that installs an extra. `folder`: where the packages lie; a checkout has exact versions there.

    `environment`: the folder of this Python environment.
    """
    file = f"requirements/{extra}.txt"
    if (folder / file).is_file():
        what = f"-r {file}"
    else:
        what = f"-e '.[{extra}]'" if (folder / "requirements.txt").is_file() else f"'{DISTRIBUTION}[{extra}]'"
    if extra == "vllm":  # it wants other versions than the rest, and would break this environment
        made = "python3 -m venv .venv-vllm && .venv-vllm/bin/python -m pip install"
        return f"{made} {what} (an environment of its own: docs/vllm.md)"
    return pip_install(what, environment=environment)


def installing_lab() -> str:
    """The command that installs the lab."""
    return "make lab" if (_FOLDER / "requirements" / "lab.txt").is_file() else pip_install(LAB)


def pip_install(what: str, variables: str = "", environment: Path = Path(sys.prefix)) -> str:
    """The command for `pip install WHAT` in an environment that may have no pip.

    `variables`: assignments that the command needs, as a shell reads them.
    """
    command = next((command for file, command in _TOOLS.items() if (environment / file).is_file()), "")
    if not command:
        command = "{variables}{python} -m pip install {what}" if find_spec("pip") else _UV
    return command.format(
        variables=f"{variables} " if variables else "", name=environment.name, python=sys.executable, what=what
    )
