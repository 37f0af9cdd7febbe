"""Which hosts and which origins of web pages a service answers to, and which settings are refused."""

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.http_service.web_pages import Hosts, Origins, host_of, read_hosts, read_origins
from specpair.protocol.errors import ForeignHost, ForeignOrigin, InvalidHead


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "BigBox")
    monkeypatch.setattr(socket, "getfqdn", lambda: "bigbox.home.example")


def named_by(*headers: tuple[str, str], **changed: Any) -> str:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return host_of({"type": "http", "method": "GET", "path": "/", "http_version": "1.1", "headers": raw, **changed})


def check(host: str, allowed: str = "") -> None:
    asyncio.run(Hosts(read_hosts(allowed), "VERIFIER_ALLOWED_HOSTS").check(named_by(("host", host))))


@pytest.mark.parametrize(
    "host",
    [
        *["127.0.0.1:8000", "127.0.0.1", "192.168.1.7:8000", "203.0.113.7", "[::1]:8000", "[::1]"],
        *("[fe80::1%25eth0]:80", "[fe80::1%eth0]"),
        *("localhost", "localhost:8000", "LOCALHOST:8000", "app.localhost:3000", "localhost."),
        *("bigbox:8000", "BigBox", "bigbox.local:8000", "bigbox.local.", "bigbox.home.example:8000"),
        *("host.docker.internal:8080", "host.containers.internal"),
    ],
)
def test_addresses_and_names_of_this_machine_are_served(host: str) -> None:
    check(host)


def test_a_program_without_a_host_is_served_where_http_allows_it() -> None:
    assert named_by(http_version="1.0") == ""
    asyncio.run(Hosts().check(""))
    with pytest.raises(InvalidHead, match="0 headers Host: send one"):
        named_by()


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example:8000", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "notlocalhost"),
        *("bigbox.evil.example", "evil.bigbox", "evil.local:8000", "bigbox.home.example.evil", "2130706433", "1.2.3"),
    ],
)
def test_other_names_are_refused_with_the_setting_to_change(host: str) -> None:
    with pytest.raises(ForeignHost, match=r"add the name to VERIFIER_ALLOWED_HOSTS, or set a key"):
        check(host)
    check(host, allowed="*")


INVALID = [
    *("", " ", ":8000", ".", "..", ".localhost", "a..localhost", "-.localhost", "localhost..", "evil .localhost"),
    *("evil#.localhost", "evil/.localhost", "evil?.localhost", "evil\\.localhost", "evil%00.localhost"),
    *("evil,localhost", "[::1]evil", "[::1].evil.example", "evil[::1]", "[::1", "::1", "[::1]]", "[]"),
    *("[evil.example]:80", "[127.0.0.1]"),
    *["[:::]", "[::1%]", "[fe80::1%25e/0]", "localhost:x", "localhost:-1", "localhost:+1", "localhost:1:2"],
    *("localhost:65536", "localhost:99999", "localhost:000080", "localhost: 80", "localhost:8\xb2", "a@localhost"),
    *["localhost@evil.example", "u:p@localhost:80", "http://localhost", "localhost/"],
    *("\xff", "\x1b[2J", "a\nb", "x" * 5000),
]


@pytest.mark.parametrize("host", INVALID)
def test_what_is_no_host_is_refused_whatever_is_allowed(host: str) -> None:
    with pytest.raises(InvalidHead, match="which is no host: send a name or an address") as refused:
        check(host, allowed="*")
    assert refused.value.message.isprintable() and len(refused.value.message) < 500


@given(st.text(st.characters(max_codepoint=255), max_size=12))
def test_what_comes_before_a_known_name_is_of_it_or_refused(before: str) -> None:
    try:
        host = named_by(("host", before + ".localhost"))
    except InvalidHead:
        return
    assert host == f"{before.lstrip(chr(9) + chr(32))}.localhost".lower() and all(
        each.isalnum() or each in "-_." for each in host
    )


@pytest.mark.parametrize(
    ("headers", "changed", "words"),
    [
        ([("host", "localhost"), ("host", "localhost")], {}, "2 headers Host: send one"),
        ([("host", "localhost"), ("host", "evil.example")], {"http_version": "1.0"}, "2 headers Host: send one"),
        ([("host", "a"), ("origin", "http://a"), ("origin", "http://b")], {}, "2 headers Origin: send one, or none"),
        ([("host", "a"), ("origin", "http://a"), ("origin", "")], {}, "2 headers Origin"),
        ([("host", "a")], {"path": "http://evil.example/health"}, "the request is for 'http://evil.example/health'"),
        ([("host", "a")], {"path": "*"}, "write the path alone"),
        ([("host", "a")], {"path": ""}, "write the path alone"),
    ],
)
def test_a_head_that_names_two_things_is_refused(headers: Any, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidHead, match=words):
        named_by(*headers, **changed)


def test_allowed_names_are_served() -> None:
    allowed = "verifier, *.svc.cluster.local,big.example"
    for host in ("verifier:8000", "a.svc.cluster.local", "a.b.svc.cluster.local:80", "BIG.example"):
        check(host, allowed=allowed)
    for host in ("svc.cluster.local", "evilsvc.cluster.local", "x.big.example", "verifier.example"):
        with pytest.raises(ForeignHost):
            check(host, allowed=allowed)


NO_HOSTS = ("https://big.example", "big.example:8000", "big.example/", "Big.example", "*.", "a.*.example", "a b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "is not the name of a host: write bigbox.example or .*, in lower case") for text in NO_HOSTS),
        ("a,*", r"\* allows every name: leave out the others"),
    ],
)
def test_bad_setting_is_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_hosts(text)


APP = "https://app.example"


def check_origin(allowed: str, origin: str | None, host: str = "bigbox:8000") -> None:
    headers = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode("latin-1"))])
    Origins(read_origins(allowed), "VERIFIER_CORS_ORIGINS").check(headers)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "bigbox:8000"),  # a program, not a browser
        ("http://bigbox:8000", "bigbox:8000"),
        ("https://bigbox:8000", "bigbox:8000"),
        ("https://bigbox", "bigbox"),
        ("https://bigbox", "bigbox:443"),
        ("http://bigbox", "BigBox:80"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_pages_of_the_service_itself_and_programs_are_served(origin: str | None, host: str) -> None:
    check_origin("", origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        APP,
        "http://bigbox",  # another port
        "http://bigbox:80001",
        "http://bigbox:8000.evil.example",
        "http://evil.example#bigbox:8000",
        "null",  # a page without an origin, such as a file
        "bigbox:8000",
        "ftp://bigbox:8000",
        "x\xff",
    ],
)
def test_other_pages_are_refused_with_the_setting_to_change(origin: str) -> None:
    with pytest.raises(ForeignOrigin, match="may not use this service: set VERIFIER_CORS_ORIGINS to that origin"):
        check_origin("", origin)
    with pytest.raises(ForeignOrigin):
        check_origin("https://other.example", origin)
    check_origin("*,null", origin)


@pytest.mark.parametrize(
    ("allowed", "origin"),
    [
        ("app://obsidian.md", "app://obsidian.md"),
        ("app://-", "app://-"),
        ("tauri://localhost", "tauri://localhost"),
        ("capacitor://localhost:8100", "capacitor://localhost:8100"),
        ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
        ("moz-extension://*", "moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc"),
        ("vscode-webview://*", "vscode-webview://0q1w2e3r4t5y"),
        ("file://", "file://"),
        ("*", "vscode-webview://x"),
        ("null", "null"),
        ("*,null", "null"),
    ],
)
def test_apps_and_extensions_are_served_where_allowed(allowed: str, origin: str) -> None:
    check_origin(allowed, origin)
    with pytest.raises(ForeignOrigin):
        check_origin("https://other.example, app://other, other://*", origin)


@pytest.mark.parametrize(
    ("allowed", "origin"),
    [
        ("*", "null"),  # only by its name
        ("vscode-webview://*", "https://vscode-webview.example"),
        ("vscode-webview://*", "vscode-webview"),
        ("vscode-webview://*", "vscode://x"),
        ("app://obsidian.md", "app://obsidian.md.evil"),
        ("app://obsidian.md", "https://obsidian.md"),
    ],
)
def test_an_allowed_app_allows_no_other(allowed: str, origin: str) -> None:
    with pytest.raises(ForeignOrigin):
        check_origin(allowed, origin)


def test_a_request_without_a_host_is_of_no_page_of_the_service() -> None:
    with pytest.raises(ForeignOrigin):
        Origins((), "x").check([(b"origin", b"http://")])


NO_ORIGINS = (
    *("app.example", "https://app.example/", "https://app.example/path", "https://App.example", "https://*.example"),
    *("https://*", "app://a/b", "app://*.b", "app:x", f"{APP} http://b.example"),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "is not an origin: write https://host") for text in NO_ORIGINS),
        (f"{APP},*", r"\* allows every origin but null: leave out the others"),
        ("https://app.example:443", "browsers leave out the port 443"),
    ],
)
def test_bad_origins_are_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_origins(text)
