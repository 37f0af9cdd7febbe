"""What to install where a package is missing: the extra of pyproject.toml that has it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent
EXTRAS = {  # the modules that each extra brings; what all parts need is no extra
    "client": ("httpx", "httpcore", "socksio", "prompt_toolkit", "jinja2", "yaml"),
    "server": (
        *("fastapi", "fastapi_offline", "starlette", "uvicorn", "httptools", "uvloop"),
        *("prometheus_client", "jinja2"),
    ),
    "llama": ("llama_cpp", "gguf"),
    "torch": ("torch", "transformers", "tokenizers", "safetensors", "accelerate"),
    "mlx": ("mlx", "mlx_lm"),
    "vllm": ("vllm",),
    "sglang": ("httpx", "tokenizers"),
    "hub": ("huggingface_hub",),
    "plots": ("matplotlib",),
    "simulator": ("yaml", "matplotlib"),
    "parquet": ("pyarrow",),
    "cloudwatch": ("boto3", "botocore"),
}


class MissingExtra(ModuleNotFoundError):
    """A package of an extra is not installed. The message says how to install it."""


@contextmanager
def extras_named(first: str = "") -> Iterator[None]:
    """In this context, the import of a package that an extra would bring raises MissingExtra, if it is missing.

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


# What these tools leave in an environment, which then has no pip; and the command of each that makes it anew.
_TOOLS = {"pipx_metadata.json": "pipx install --force", "uv-receipt.toml": "uv tool install --force"}


def installing(extra: str, folder: Path = _FOLDER, environment: Path = Path(sys.prefix)) -> str:
    """The command that installs an extra. `folder`: where the packages lie; a checkout has exact versions there.

    `environment`: the folder of this Python environment.
    """
    for file, command in _TOOLS.items():
        if (environment / file).is_file():
            return f"{command} 'specpair[all,{extra}]'"
    file = f"requirements/{extra}.txt"
    if (folder / file).is_file():
        what = f"-r {file}"
    else:
        what = f"-e '.[{extra}]'" if (folder / "requirements.txt").is_file() else f"'specpair[{extra}]'"
    return f"{sys.executable} -m pip install {what}"
