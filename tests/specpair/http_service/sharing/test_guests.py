"""Who may join a shared service: invitations, their ends, wrong tokens, names of keys, and the service that ends it."""

import stat
from pathlib import Path

import pytest

from specpair.http_service.keys import key_file
from specpair.http_service.sharing import joining
from specpair.http_service.sharing.commands import run
from specpair.http_service.sharing.invitations import Invitations
from specpair.http_service.sharing.joining import WRONG, Guests, plain_name
from specpair.http_service.sharing.link import read_link, written
from specpair.http_service.sharing.share import Share
from specpair.protocol.errors import Forbidden, RateLimited


@pytest.fixture
def share(tmp_path: Path) -> Share:
    made = Share("verifier", tmp_path / "verifier")
    made.prepare()
    made.port = 8000
    return made


def test_only_the_owner_reads_the_files_and_a_second_start_keeps_them(share: Share) -> None:
    before = {path.name: path.read_bytes() for path in share.folder.iterdir() if path.is_file()}
    share.prepare()
    assert {path.name: path.read_bytes() for path in share.folder.iterdir() if path.is_file()} == before
    assert stat.S_IMODE(share.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((share.folder / name).stat().st_mode) for name in before if name != "port"} == {0o600}


def test_an_invitation_ends_with_its_time_or_its_uses(tmp_path: Path) -> None:
    now = 1000.0
    invitations = Invitations(tmp_path / "invitations.json", lambda: now)
    once, thrice, short = invitations.invite(), invitations.invite("team", uses=3), invitations.invite(seconds=10)
    assert once not in (tmp_path / "invitations.json").read_bytes()
    used = []
    for token in (once, thrice, short):
        for _ in range(5):
            found = invitations.find(token)
            used.append(found is not None and invitations.use(found))
    assert used == [True, *[False] * 4, *[True] * 3, *[False] * 2, True, *[False] * 4]
    late = invitations.invite(seconds=10)
    stale = invitations.find(late)
    now += 10
    assert invitations.find(late) is None and stale is not None and not invitations.use(stale)


def test_a_client_with_wrong_tokens_has_to_wait_also_with_a_right_one_and_another_has_not(
    share: Share, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, right, bad = 0.0, _token(share), ["", "A" * 22, "x", written(bytes(16))]
    monkeypatch.setattr(joining, "CLIENTS", 3)
    guests = Guests(share, "bigbox", lambda: now)
    for number in range(WRONG):
        with pytest.raises(Forbidden, match="not open"):
            guests.find(bad[number % len(bad)], "192.0.2.7")
    for token in (right, *bad * 250):
        with pytest.raises(RateLimited):
            guests.find(token, "192.0.2.7")
    assert guests.find(right, "192.0.2.8").uses == 1
    assert (guests.joined, guests.refused, key_file.read(share.keys)) == (0, WRONG + 1001, [])
    assert len(caplog.messages) == 1 and "from 192.0.2.7" in caplog.text, "not a line for each of them"
    now = 60.0
    assert guests.find(right, "192.0.2.7").uses == 1
    for number in range(50):  # each network is a client
        with pytest.raises(Forbidden):
            guests.find("x", f"2001:db8:0:{number:x}::1")
    assert guests.watched == 3 and len(caplog.messages) == 2


def test_guests_get_names_of_their_own(share: Share) -> None:
    guests = Guests(share, "bigbox")
    asked = (("", "lap"), ("", "lap"), ("", "ö ü.local"), ("desk", "lap"))
    named = [guests.join(guests.find(_token(share, key), None), name, None).name for key, name in asked]
    assert named == ["lap", "lap-2", "guest", "desk"]
    assert [key.name for key in key_file.read(share.keys) if key.joined] == named
    assert {plain_name(name) for name in ("sp-x", "default", "-.-", "")} == {"guest-sp-x", "guest-default", "guest"}


def _token(share: Share, name: str = "") -> str:
    return written(share.invitations.invite(name))


def test_commands_invite_end_sharing_and_renew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run("verifier", "invite", ["lap"]) == 1
    assert "start the service once with verifier --share" in capsys.readouterr().err
    share = Share("verifier")
    share.prepare()
    share.port = 8443
    assert run("verifier", "invite", ["lap", "--for", "2d", "--uses", "3", "--qr"]) == 0
    command, drawn = capsys.readouterr().out.split("\n", 1)
    link = read_link(command.removeprefix("drafter join "))
    found = share.invitations.find(link.token)
    assert found is not None and (found.name, found.uses, link.port) == ("lap", 3, 8443) and "█" in drawn
    anchor, certificate = share.anchor.read_bytes(), share.certificate.read_bytes()
    assert run("verifier", "cert", ["renew"]) == 0
    assert share.anchor.read_bytes() == anchor and share.certificate.read_bytes() != certificate
    assert run("verifier", "unshare", []) == 0 and share.off and share.invitations.find(link.token) is None
    assert run("verifier", "invite", ["desk"]) == 1
    share.prepare()
    assert not share.off


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["lap", "--for", "1y"], "90s, 30m"), (["lap", "--uses", "0"], "from 1 to 1000"), (["-x"], ""), ([], "NAME")],
)
def test_bad_flags_of_an_invitation(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("verifier", "invite", arguments)
    assert ended.value.code == 2 and complaint in capsys.readouterr().err
