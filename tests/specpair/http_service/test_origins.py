"""Web pages: which origins may send requests, and which settings are refused."""

import pytest

from specpair.http_service.web_pages import Origins, read_origins
from specpair.protocol.errors import ForeignOrigin

APP = "https://app.example"


def check(allowed: str, origin: str | None, host: str = "bigbox:8000") -> None:
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
    check("", origin, host)


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
        check("", origin)
    with pytest.raises(ForeignOrigin):
        check("https://other.example", origin)
    check("*,null", origin)


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
    check(allowed, origin)
    with pytest.raises(ForeignOrigin):
        check("https://other.example, app://other, other://*", origin)


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
        check(allowed, origin)


def test_refusal_is_one_short_line_for_any_origin() -> None:
    with pytest.raises(ForeignOrigin) as refused:
        check("", "\x1b[2J\n" + "x" * 5000)
    assert refused.value.message.isprintable() and len(refused.value.message) < 400


def test_a_request_without_a_host_is_of_no_page_of_the_service() -> None:
    with pytest.raises(ForeignOrigin):
        Origins((), "x").check([(b"origin", b"http://")])


def test_allowed_origins_are_served() -> None:
    for origin in (APP, "http://localhost:3000"):
        check(f" {APP}, http://localhost:3000 ,", origin)


def test_no_origin_is_allowed_by_an_empty_setting() -> None:
    assert read_origins("") == read_origins(" , ") == ()
    assert read_origins("*") == ("*",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("app.example", "is not an origin: write https://host"),
        ("https://app.example/", "is not an origin"),
        ("https://app.example/path", "is not an origin"),
        ("https://App.example", "is not an origin"),
        ("https://*.example", "is not an origin"),
        ("https://*", "is not an origin"),
        ("app://a/b", "is not an origin"),
        ("app://*.b", "is not an origin"),
        ("app:x", "is not an origin"),
        (f"{APP} http://b.example", "is not an origin"),
        (f"{APP},*", r"\* allows every origin but null: leave out the others"),
        ("https://app.example:443", "browsers leave out the port 443"),
    ],
)
def test_bad_setting_is_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_origins(text)
