"""Tokens, keys and private keys of a shared service are nowhere but in the files that are theirs.

The service is a process as a user starts it, with the logs of all its libraries at level debug.
"""

import io
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from drafter_client.cli.program import main
from drafter_client.hosts import HostsFile
from specpair.child_processes.children import child
from specpair.http_service.sharing.link import read_link, written
from specpair.http_service.sharing.share import Share
from tests.forking import programs
from tests.paths import ROOT
from tests.waiting import needs_proc, until

VERBOSE = (
    "import logging, sys; logging.basicConfig(level=logging.DEBUG); "
    "from verifier_server.__main__ import main; sys.exit(main())"
)
WITH_PRIVATE_KEYS = {"certificate.pem", "anchor.pem"}


def _processes(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for each in (task / "children").read_text().split():
            yield from _processes(int(each))


def _shown(pid: int) -> str:
    """What a list of processes shows of a service."""
    shown = list[str]()
    for each in _processes(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # a short one may have ended
            shown += (Path(f"/proc/{each}/{name}").read_text(errors="replace") for name in ("cmdline", "environ"))
    return "".join(shown)


@needs_proc
def test_secrets_of_a_shared_service_are_shown_nowhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    folders = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environment = {**os.environ, **folders, "VERIFIER_BACKEND": "scripted"}
    for name, value in folders.items():
        monkeypatch.setenv(name, value)
    flags = ("--share", "--access-log", "--log-format", "json")
    share, seen = Share("verifier"), list[str]()
    log = tmp_path / "log"

    def verifier(*arguments: str) -> str:
        ran = programs().run(["-m", "verifier_server", *arguments], ROOT, environment)
        assert ran.returncode == 0, ran.stderr
        seen.append(ran.stderr)
        return ran.stdout

    with (
        log.open("wb") as file,
        child(
            "-c", VERBOSE, *flags, "--port", "0", environment=environment, stdout=file.fileno(), stderr=file.fileno()
        ) as box,
    ):
        until(lambda: "Uvicorn running on" in log.read_text(), "the service does not start", 60)
        link = read_link(verifier("invite", "laptop").removeprefix("drafter join "))
        left = share.invitations.invite()  # an open one
        link = link._replace(host="127.0.0.1")
        monkeypatch.setattr(sys, "stdin", io.StringIO(str(link)))
        assert main(["join", "-", "--name", "bigbox", "--no-tune"]) == 0
        host = HostsFile().find("bigbox")
        assert host is not None
        assert main(["--prompt", "x", "--mode", "target", "--max-tokens", "4", "--json"]) == main(["hosts"]) == 0
        with httpx.Client(base_url=host.url, verify=host.trust.context, trust_env=False, timeout=20) as client:
            for body in ({"token": written(link.token)}, {"token": written(left), "name": 1}, {"tokn": written(left)}):
                seen.append(client.post("/join", json=body).text)
            client.headers["Authorization"] = f"Bearer {host.key}"
            asked = {"prompt": "x", "max_tokens": 4, "guided_regex": "[a-z]+"}  # a process of its own tries it
            assert client.post("/v1/completions", json=asked).status_code == 200
            for path in ("/health", "/metrics", "/usage", "/model", "/live", "/ready", "/join", "/openapi.json"):
                reply = client.get(path)
                assert reply.status_code == 200, path
                seen.append(reply.text)
        seen.append(_shown(box.pid))
        seen.append(verifier("--print-config", *flags) + verifier("key", "list"))
        for command in ([], ["serve"]):
            with pytest.raises(SystemExit, match="0"):
                main([*command, "--print-config"])
        verifier("key", "revoke", "laptop")
        until(lambda: main(["--prompt", "x", "--mode", "target"]) == 1, "the revoked key is taken", 20)
        verifier("cert", "renew")
        box.terminate()
        box.wait(20)
    seen += [log.read_text(), caplog.text, *capsys.readouterr()]
    assert "laptop joined" in seen[-4] and "POST /join" in seen[-4] and "keys reloaded" in seen[-4], "the log has all"
    kept = [path for path in share.folder.rglob("*") if path.is_file()]
    seen += [path.read_text() for path in kept if path.name not in WITH_PRIVATE_KEYS]
    private = "".join((share.folder / name).read_text() for name in WITH_PRIVATE_KEYS)
    bodies = re.findall(r"BEGIN PRIVATE KEY-----\n(.+?)\n-----END", private, re.DOTALL)
    tokens = [form for token in (link.token, left) for form in (written(token), token.hex())]
    secrets = [host.key, *tokens, *(line for body in bodies for line in body.splitlines())]
    assert len(secrets) == 11
    assert [name for name in secrets if any(name in each for each in seen)] == []
    assert {stat.S_IMODE(path.stat().st_mode) for path in [HostsFile().path, *kept] if path.name != "port"} == {0o600}
