"""A laptop joins a shared verifier over TLS, and what goes wrong on the way. Real servers in threads."""

import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.cli.program import main
from drafter_client.errors import BadKey, DrafterError, VerifierUnreachable
from drafter_client.hosts import Host, HostsFile, JoinError, answering, join
from drafter_client.http.client import VerifierClient
from drafter_client.http.trust import Trust
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from specpair.http_service import accepting
from specpair.http_service.certificate import Certificate
from specpair.http_service.keys import key_file
from specpair.http_service.listening import ListeningServer, bind_sockets, configured, welcome
from specpair.http_service.observability import health
from specpair.http_service.sharing import lan
from specpair.http_service.sharing import share as share_module
from specpair.http_service.sharing.joining import WRONG
from specpair.http_service.sharing.lan import Seen
from specpair.http_service.sharing.link import JoinLink, fingerprint, written
from specpair.http_service.sharing.share import Share
from tests.drafter_client.support import Held
from verifier_server.app import create_app
from verifier_server.settings import Settings


@dataclass
class Shared:
    share: Share
    port: int

    def link(self, token: bytes | None = None, pin: bytes | None = None) -> JoinLink:
        known = fingerprint(self.share.anchor_pem)
        return JoinLink("127.0.0.1", self.port, pin or known, token or self.share.invitations.invite())


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(share_module, "own_addresses", lambda: ["127.0.0.1"])
    monkeypatch.setattr(lan, "look", network())  # no test searches the real one


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Shared]:
    with sharing(tmp_path / "box") as shared:
        yield shared


@contextmanager
def sharing(folder: Path, backend: ScriptedBackend | None = None) -> Iterator[Shared]:
    """A verifier that is shared, in a thread."""
    share = Share("verifier", folder)
    share.prepare()
    app = create_app(Settings(backend="scripted", keys_file=share.keys), backend or ScriptedBackend(Script(seed=1)))
    certificate = Certificate(share.certificate, None)
    sockets = bind_sockets("127.0.0.1", 0)
    welcome(app, share, sockets)
    up = threading.Event()

    class Signalling(ListeningServer):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            up.set()

    server = Signalling(configured(app, ssl_certfile=certificate.certfile, lifespan="on"), certificate)
    app.gate.on_unshared = server.shut_out_others
    thread = threading.Thread(target=server.run, args=(sockets,), name="uvicorn")
    thread.start()
    try:
        assert up.wait(20), "the server did not start"
        app.state.service.loader.wait()
        yield Shared(share, share.port)
    finally:
        server.should_exit = True
        thread.join()
        for each in sockets:
            each.close()


def network(*announced: Seen, error: Exception | None = None) -> Callable[[float], Iterator[Seen]]:
    """A local network in place of `lan.look`, with what is announced there."""

    def look(seconds: float) -> Iterator[Seen]:
        assert seconds <= 3.0
        if error is not None:
            raise error
        yield from announced

    return look


def _client(host: Host) -> VerifierClient:
    return VerifierClient(host.url, api_key=host.key, trust=host.trust)


def test_a_guest_gets_a_key_of_its_own_and_needs_nothing_more(
    box: Shared, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    link = box.link()
    with caplog.at_level("DEBUG"):
        assert main(["join", str(link), "--name", "bigbox", "--no-tune"]) == 0
        assert main(["--prompt", "x", "--mode", "target", "--max-tokens", "4", "--json"]) == 0
        assert main(["hosts"]) == 0
    out, err = capsys.readouterr()
    host = HostsFile().find("bigbox")
    assert host is not None and "certificate matches" in out and host.addresses == (f"127.0.0.1:{box.port}",)
    assert stat.S_IMODE(HostsFile().path.stat().st_mode) == 0o600
    seen = out + err + caplog.text
    assert host.key not in seen and str(link)[-22:] not in seen, "secrets are shown nowhere"
    (stored,) = key_file.read(box.share.keys)
    assert (
        stored.name == host.key_name and stored.joined and (key_file.seen_folder(box.share.keys) / stored.name).exists()
    )
    assert main(["leave", "bigbox"]) == 0 and HostsFile().all() == []


def _flipped(value: bytes) -> bytes:
    return bytes([value[0] ^ 1]) + value[1:]


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("used", "used already"),
        ("late", "older than an hour"),
        ("token", "not open"),
        ("pin", "shows another certificate than the link says, so nothing was sent"),
        ("other", "shows another certificate than the link says"),
        ("relayed", "another machine answered"),
        ("gone", "nothing answers at"),
    ],
)
def test_what_is_not_to_be_joined_is_refused_in_one_line(
    box: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, complaint: str
) -> None:
    link = box.link()
    with ExitStack() as stack:
        if kind == "used":
            join(link, "first", 0.0)
        elif kind == "late":
            link = box.link(box.share.invitations.invite(seconds=0.0))
        elif kind == "token":
            link = box.link(_flipped(link.token))
        elif kind == "pin":
            link = box.link(link.token, _flipped(link.fingerprint))
        elif kind == "gone":
            link = link._replace(port=1)
        else:  # a host in the middle has another key, and may show the certificate of the true one
            middle = stack.enter_context(sharing(tmp_path / "middle"))
            link = link._replace(port=middle.port)
            if kind == "relayed":
                monkeypatch.setattr(Share, "anchor_pem", box.share.anchor_pem)
        before = box.share.keys.read_bytes()
        with pytest.raises(JoinError, match=complaint) as caught:
            join(link, "laptop", 0.0)
        assert "\n" not in str(caught.value) and box.share.keys.read_bytes() == before


def test_a_revoked_key_ends_its_texts(tmp_path: Path) -> None:
    held = Held(Script(seed=1))
    with sharing(tmp_path / "box", held) as box:
        host = join(box.link(), "laptop", 0.0)
        held.go(20)
        with Pair(host.url, None, api_key=host.key, trust=host.trust, patience=5.0) as pair:
            text = pair.generate("x", Options(mode=Mode.TARGET, max_tokens=900))
            next(iter(text))
            key_file.remove(box.share.keys, host.key_name)
            with pytest.raises(DrafterError, match="does not take this key: it was revoked there, so join again"):
                text.read()
        held.go()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of loopback")
def test_once_nothing_is_shared_other_machines_are_cut_off_and_this_one_is_served(
    box: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "is_here", lambda client, _server: client != "127.0.0.2")
    host, link = join(box.link(), "laptop", 0.0), box.link()

    def connected() -> socket.socket:
        return socket.create_connection(("127.0.0.1", box.port), 20, ("127.0.0.2", 0))

    def served(plain: socket.socket) -> bool:
        with suppress(OSError), host.trust.context.wrap_socket(plain) as client:
            client.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            return client.recv(12) == b"HTTP/1.1 200"
        return False

    with host.trust.context.wrap_socket(connected()) as idle, connected() as early, closing(_client(host)) as here:
        assert served(connected()) and here.model().name
        box.share.unshare()
        with suppress(ConnectionResetError):
            assert not idle.recv(1), "it ends"
        assert not served(early), "it was open before its handshake"
        assert not served(connected())
        assert here.model().name
    with pytest.raises(JoinError, match="not shared"):
        join(link, "desk", 0.0)


def test_wrong_tokens_let_nobody_in(
    box: Shared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "SLOW", 0.0)
    right = written(box.link().token)
    trust = Trust(box.share.anchor_pem)
    with httpx.Client(base_url=f"https://127.0.0.1:{box.port}", verify=trust.context, trust_env=False) as client:
        asked = [client.post("/join", json={"token": token}) for token in [*["A" * 22] * 50, right]]
        assert client.get("/live").status_code == 200
    assert [reply.status_code for reply in asked] == [403] * WRONG + [429] * (51 - WRONG)
    assert 0 < int(asked[-1].headers["Retry-After"]) <= 60
    assert key_file.read(box.share.keys) == [] and caplog.text.count("wrong token") == 1


def test_a_host_is_found_after_a_restart_at_a_new_address_and_with_a_new_certificate(tmp_path: Path) -> None:
    folder = tmp_path / "box"
    with sharing(folder) as box:
        host = join(box.link(), "laptop", 0.0)
        box.share.renew()
    with sharing(folder) as box, sharing(tmp_path / "another") as another:
        moved = replace(host, addresses=(*host.addresses, f"127.0.0.1:{another.port}", f"127.0.0.1:{box.port}"))
        found = answering(moved)
        assert found.addresses[0] == f"127.0.0.1:{box.port}", "an address of another machine is passed over"
        with closing(_client(found)) as client:
            assert client.model().name
        with (
            closing(_client(replace(host, key="sp-other", addresses=found.addresses))) as client,
            pytest.raises(BadKey),
        ):
            client.model()


def test_the_host_joined_last_is_used_unless_another_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sharing(tmp_path / "one") as one, sharing(tmp_path / "two", ScriptedBackend(Script(seed=2))) as two:
        assert (
            main(["join", str(one.link()), "--name", "one", "--no-tune"])
            == main(["join", str(two.link()), "--name", "two", "--no-tune"])
            == 0
        )
        capsys.readouterr()
        texts = []
        for which in ([], ["--host", "two"], ["--host", "one"], ["--verifier", "one"]):
            assert main([*which, "--prompt", "x", "--mode", "target", "--max-tokens", "8"]) == 0
            texts.append(capsys.readouterr().out)
        assert texts[0] == texts[1] != texts[2] == texts[3]
    with pytest.raises(SystemExit):
        main(["--host", "tow", "--prompt", "x"])
    assert "did you mean two?" in capsys.readouterr().err


DEAD = "127.0.0.1:1"
OTHER = written(bytes(16))


def test_a_host_that_moved_is_found_on_the_local_network_by_its_certificate_alone(
    box: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = replace(join(box.link(), "laptop", 0.0), addresses=(DEAD,))
    HostsFile().keep(host)
    pin = written(fingerprint(host.certificate))
    with sharing(tmp_path / "another") as another, socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        seen = [
            Seen("stranger", "verifier", OTHER, (f"127.0.0.1:{stranger.getsockname()[1]}",)),
            Seen("liar", "verifier", pin, (f"127.0.0.1:{another.port}",)),
            Seen("bigbox", "verifier", pin, (DEAD, f"127.0.0.1:{box.port}")),
        ]
        monkeypatch.setattr(lan, "look", network(*seen))
        for _ in range(2):
            assert main(["--prompt", "x", "--mode", "target", "--max-tokens", "4"]) == 0
            monkeypatch.setattr(lan, "look", network())  # the address was kept
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert HostsFile().all() == [replace(host, addresses=(f"127.0.0.1:{box.port}", DEAD))]


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (None, r"at none of its addresses \(127.0.0.1:1\), and was not found on this network in 3 s: .*blocked"),
        (lan.LanError("No route to host"), r"this network cannot be searched \(No route to host\)"),
    ],
)
def test_a_host_that_is_not_found_is_told_in_one_line(
    box: Shared,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception | None,
    complaint: str,
) -> None:
    host = replace(join(box.link(), "laptop", 0.0), addresses=(DEAD,))
    HostsFile().keep(host)
    monkeypatch.setattr(lan, "look", network(Seen("x", "verifier", OTHER, (DEAD,)), error=error))
    with pytest.raises(VerifierUnreachable, match=complaint + ".*'verifier invite NAME' there$") as caught:
        answering(host)
    assert "\n" not in str(caught.value) and host.key not in str(caught.value)
    assert main(["--prompt", "x"]) == 1 and "at none of its addresses" in capsys.readouterr().err
    assert main(["models", "list"]) == 0, "it can do without a verifier"


def test_a_host_whose_address_another_machine_has_is_told_by_its_certificate(box: Shared, tmp_path: Path) -> None:
    with sharing(tmp_path / "another") as another:
        host = replace(join(box.link(), "laptop", 0.0), addresses=(f"127.0.0.1:{another.port}",))
        assert answering(host) == host
        with closing(_client(host)) as client, pytest.raises(VerifierUnreachable, match="another certificate than"):
            client.model()


def test_a_terminal_also_lists_hosts_of_the_network_that_were_not_joined(
    box: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = join(box.link(), "laptop", 0.0)
    HostsFile().keep(host)
    unknown = Seen("new\x1b[2J", "router", OTHER, ("192.0.2.9:8000",))
    mine = Seen("bigbox", "verifier", written(fingerprint(host.certificate)), host.addresses)
    monkeypatch.setattr(lan, "look", network(mine, unknown, unknown))
    assert main(["hosts"]) == 0 and "not joined" not in capsys.readouterr().out, "a script does not wait"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["hosts"]) == 0
    [line] = [each for each in capsys.readouterr().out.splitlines() if "joined:" in each]
    assert line == "not joined: new\\x1b[2J (router, 192.0.2.9:8000); ask for a link there: specpair router invite NAME"
