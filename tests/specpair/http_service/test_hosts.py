"""The names that a service without a key answers to, and which settings are refused."""

import asyncio
import socket

import pytest

from specpair.http_service.hosts import Hosts, read_hosts
from specpair.protocol.errors import ForeignHost

OWN = "bigbox"


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "BigBox")
    monkeypatch.setattr(socket, "getfqdn", lambda: "bigbox.home.example")


def check(*hosts: str, allowed: str = "") -> None:
    headers = [(b"host", host.encode("latin-1")) for host in hosts]
    asyncio.run(Hosts(read_hosts(allowed), "VERIFIER_ALLOWED_HOSTS").check(headers))


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1:8000",
            "127.0.0.1",
            "192.168.1.7:8000",
            "203.0.113.7",
            "[::1]:8000",
            "[::1]",
            "[fe80::1%25eth0]:80",
        ),
        *("localhost", "localhost:8000", "LOCALHOST:8000", "app.localhost:3000", "localhost."),
        *("bigbox:8000", "BigBox", "bigbox.local:8000", "bigbox.local.", "bigbox.home.example:8000"),
        *("host.docker.internal:8080", "host.containers.internal"),
    ],
)
def test_addresses_and_names_of_this_machine_are_served(host: str) -> None:
    check(host)


def test_a_program_without_a_host_is_served() -> None:
    check()


FOREIGN = [
    *("evil.example:8000", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "notlocalhost"),
    *("bigbox.evil.example", "evil.bigbox", "evil.local:8000", "bigbox.home.example.evil", "x:y", "", ":8000"),
    *("a@localhost", "localhost@evil.example", "[evil.example]:80", "2130706433x", "\xff"),
]


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names_are_refused_with_the_setting_to_change(host: str) -> None:
    with pytest.raises(ForeignHost, match=r"add the name to VERIFIER_ALLOWED_HOSTS, or set a key"):
        check(host)
    with pytest.raises(ForeignHost):
        check("localhost", host)
    check(host, allowed="*")


def test_refusal_is_one_short_line_for_any_host() -> None:
    with pytest.raises(ForeignHost) as refused:
        check("\x1b[2J\n" + "x" * 5000)
    assert refused.value.message.isprintable() and len(refused.value.message) < 400


def test_allowed_names_are_served() -> None:
    allowed = "verifier, *.svc.cluster.local,big.example"
    for host in ("verifier:8000", "a.svc.cluster.local", "a.b.svc.cluster.local:80", "BIG.example"):
        check(host, allowed=allowed)
    for host in ("svc.cluster.local", "evilsvc.cluster.local", "x.big.example", "verifier.example"):
        with pytest.raises(ForeignHost):
            check(host, allowed=allowed)


def test_the_full_name_is_looked_up_once_and_only_for_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def getfqdn() -> str:
        asked.append(1)
        return "bigbox.home.example"

    monkeypatch.setattr(socket, "getfqdn", getfqdn)

    async def ask() -> None:
        hosts = Hosts()
        await hosts.check([(b"host", b"bigbox:8000")])
        assert not asked
        checks = [hosts.check([(b"host", name)]) for name in (b"bigbox.home.example", b"a.example", b"b.example")]
        results = await asyncio.gather(*checks, return_exceptions=True)
        assert [type(each) for each in results] == [type(None), ForeignHost, ForeignHost]

    asyncio.run(ask())
    assert asked == [1]


def test_no_name_is_allowed_by_an_empty_setting() -> None:
    assert read_hosts("") == read_hosts(" , ") == ()
    assert read_hosts("*") == ("*",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://big.example", "is not the name of a host: write bigbox.example"),
        ("big.example:8000", "is not the name of a host"),
        ("big.example/", "is not the name of a host"),
        ("Big.example", "in lower case"),
        ("*.", "is not the name of a host"),
        ("a.*.example", "is not the name of a host"),
        ("a b", "is not the name of a host"),
        ("a,*", r"\* allows every name: leave out the others"),
    ],
)
def test_bad_setting_is_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_hosts(text)
