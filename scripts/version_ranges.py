"""`make test-ranges`: runs the services and the drafter's client with other versions than the pinned ones.

Three environments in .venv-ranges, each made by uv in seconds: the oldest versions that pyproject.toml allows, the
newest, and those that vLLM bounds. No engine is installed, so nothing is compiled. Ends with status 1 if a test fails.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
FOLDER = ROOT / ".venv-ranges"
EXTRAS = ("client", "server", "hub", "lan")
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "trustme", "openai", "anthropic")  # pinned in requirements/dev.txt
RESOLUTIONS = {
    "oldest": ("--resolution", "lowest-direct"),
    "newest": ("--resolution", "highest"),
    "vllm": ("--constraint", str(FOLDER / "vllm.in")),
}
TESTS = (
    "tests/specpair/http_service/test_connection.py",
    "tests/specpair/http_service/test_half_closed.py",
    "tests/specpair/http_service/sharing/test_lan.py",
    "tests/gateway/openai_api/test_hang_ups.py",
    "tests/gateway/router/test_passing.py",
    "tests/drafter_client/http",
    "tests/drafter_client/serve/test_other_verifiers.py",
    "tests/verifier_server/api/test_http_protocol.py",
    "tests/verifier_server/api/test_http_options.py",
    "tests/verifier_server/test_command_line.py",
    "tests/verifier_server/test_draining.py",
)
ENGINELESS = "not model_loads and not cannot_be_loaded"  # these tests load a model by llama.cpp


def pins(file: str) -> list[str]:
    """The pinned requirements in a file of `requirements/`, without extras, which a constraint must not have."""
    lines = (ROOT / "requirements" / file).read_text(encoding="utf-8").splitlines()
    found = (line.partition("#")[0].strip() for line in lines)
    return [line.replace("[socks]", "") for line in found if line and not line.startswith("-")]


def run(*command: str | Path, **variables: str) -> int:
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}).returncode


def tested(name: str) -> bool:
    """Make the environment `name`, and run the tests there. Returns whether they pass."""
    venv, versions = FOLDER / name, FOLDER / f"{name}.txt"
    tools = [pin for pin in pins("dev.txt") if pin.partition("==")[0] in TOOLS]
    python = venv / "bin" / "python"
    compiled = ["pyproject.toml", *(each for extra in EXTRAS for each in ("--extra", extra))]
    print(f"test-ranges: {name}", flush=True)
    return not (
        run(UV, "pip", "compile", "--quiet", *RESOLUTIONS[name], *compiled, "--output-file", versions)
        or run(UV, "venv", "--quiet", "--clear", "--python", sys.executable, venv)
        or run(UV, "pip", "install", "--quiet", "--python", python, "-r", versions, *tools)
        or run(
            python, "-m", "pytest", "-n", "logical", "--dist", "worksteal", "-m", "not slow", "-k", ENGINELESS, *TESTS
        )
    )


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "vllm.in").write_text("\n".join(pins("vllm.txt")), encoding="utf-8")
    failed = [name for name in RESOLUTIONS if not tested(name)]
    if failed:
        print(f"test-ranges: tests fail with these versions: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
