"""TLS as docs/service.md shows it: its openssl lines and its commands, with a drafter and with client certificates."""

import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trustme

from drafter_client import DraftModel, Options, Pair
from drafter_client.errors import ConnectionLost, VerifierUnreachable
from specpair.child_processes.children import child
from tests.forking import programs
from tests.paths import ROOT

_BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "docs" / "service.md").read_text(), re.MULTILINE | re.DOTALL)
_OPENSSL = next(block for block in _BLOCKS if block.startswith("openssl "))
_SERVE = next(block for block in _BLOCKS if "\ndrafter serve --host" in block and "--ssl-certfile" in block)
_MUTUAL = next(block for block in _BLOCKS if "--ssl-cert-reqs" in block)
_DRAFTER = next(block for block in _BLOCKS if "SSL_CERT_FILE=" in block)
TOY = DraftModel(Path("1"), "scripted")
OPTIONS = Options(max_tokens=12, temperature=0.8, seed=3)


def _commands(block: str) -> list[list[str]]:
    return [shlex.split(line) for line in block.replace("\\\n", "").splitlines()]


def _by_openssl(folder: Path) -> None:
    for line in _commands(_OPENSSL):
        subprocess.run(line, cwd=folder, check=True, capture_output=True, timeout=60)


def _by_trustme(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = authority.issue_cert("bigbox", "localhost", "127.0.0.1")
    for name, made in (("server", server), ("client", authority.issue_cert(common_name="laptop"))):
        made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        made.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the page makes by its lines for OpenSSL 3; without that, with the like of them."""
    made = tmp_path_factory.mktemp("certificates")
    there = shutil.which("openssl") is not None
    if there and re.match(r"OpenSSL ([3-9]|\d\d)", subprocess.check_output(["openssl", "version"], text=True)):
        _by_openssl(made)
    else:
        _by_trustme(made)
    return made


def _environment(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("VERIFIER_", "DRAFTER_", "SSL_"))}
    return own | more


def _in(folder: Path, arguments: list[str]) -> list[str]:
    """The arguments of a command, with the paths of the files that it names."""
    return [str(folder / each) if (folder / each).is_file() else each for each in arguments]


@contextmanager
def verifier(folder: Path, *, client_certificates: bool) -> Iterator[str]:
    """The page's command, but on a free port of this machine and with a toy model: its address."""
    _, *arguments = _commands(_MUTUAL if client_certificates else _SERVE)[0]
    address = arguments.index("--host")
    assert arguments[address : address + 4] == ["--host", "0.0.0.0", "--port", "8443"]
    if not client_certificates:
        arguments[address : address + 4] = ["--port", "0"]
        with child(
            *("-m", "verifier_server", *_in(folder, arguments)),
            environment=_environment(VERIFIER_BACKEND="scripted", VERIFIER_API_KEY="s3cret"),
            stderr=subprocess.PIPE,
        ) as process:
            port = _said(process, r"https://127\.0\.0\.1:(\d+)")[1]
            yield f"https://localhost:{port}"
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments[address : address + 4] = ["--fd", str(listener.fileno())]
        with child(
            *("-m", "uvicorn", *_in(folder, arguments)),
            environment=_environment(VERIFIER_BACKEND="scripted", VERIFIER_API_KEY="s3cret"),
            descriptors=[listener.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ):
            port = listener.getsockname()[1]
            listener.close()
            with (  # a client waits for less time than a slow machine takes until it serves
                socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
                _trusting(folder, with_certificate=True).wrap_socket(plain, server_hostname="localhost"),
            ):
                pass
            yield f"https://localhost:{port}"


def _said(process: "subprocess.Popen[str]", pattern: str) -> "re.Match[str]":
    """What a service says on standard error, in the line that has it."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError("".join(lines))


def _trusting(folder: Path, *, with_certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if with_certificate:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


def _drafter(arguments: list[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return programs().run(["-m", "drafter_client", *arguments], ROOT, environment)


def test_drafter_reaches_a_verifier_whose_authority_it_was_given(folder: Path) -> None:
    ((assignment, _program, *arguments),) = _commands(_DRAFTER)
    name, _, file = assignment.partition("=")
    with verifier(folder, client_certificates=False) as url:
        arguments[arguments.index("https://bigbox:8443")] = url
        arguments += ["--api-key", "s3cret", "--backend", "scripted", "--draft-model", "1", "--max-tokens", "8"]
        ran = _drafter(arguments, _environment(**{name: str(folder / file)}))
        assert ran.returncode == 0, ran.stderr
        assert "8 tokens" in ran.stderr
        unknown = _drafter([*arguments, "--patience", "0"], _environment())
    assert unknown.returncode == 1 and "certificate" in unknown.stderr, unknown.stderr


def test_verifier_that_asks_for_certificates_serves_clients_that_have_one(folder: Path) -> None:
    with verifier(folder, client_certificates=True) as url:
        with (
            httpx.HTTPTransport(verify=_trusting(folder, with_certificate=True)) as transport,
            Pair(url, TOY, api_key="s3cret", transport=transport) as pair,
        ):
            assert pair.generate("import", OPTIONS).read().stats.finish_reason == "length"
        with (
            httpx.HTTPTransport(verify=_trusting(folder, with_certificate=False)) as transport,
            pytest.raises((ConnectionLost, VerifierUnreachable)),
        ):
            Pair(url, TOY, api_key="s3cret", transport=transport, patience=0.0)


def test_drafter_serves_https(folder: Path) -> None:
    _program, *arguments = _commands(_SERVE)[1]
    arguments[arguments.index("0.0.0.0")] = "127.0.0.1"
    with verifier(folder, client_certificates=False) as url:
        flags = ["--port", "0", "--verifier", url, "--api-key", "s3cret", "--backend", "scripted", "--draft-model", "1"]
        with child(
            *("-m", "drafter_client", *_in(folder, arguments), *flags),
            environment=_environment(SSL_CERT_FILE=str(folder / "ca.pem")),
            stderr=subprocess.PIPE,
        ) as process:
            address = _said(process, r"https://127\.0\.0\.1:\d+")
            trusting = _trusting(folder, with_certificate=False)
            with httpx.Client(verify=trusting, trust_env=False, timeout=60) as http:
                reply = http.post(f"{address[0]}/v1/completions", json={"prompt": "import", "max_tokens": 4})
    assert reply.json()["usage"]["completion_tokens"] == 4
