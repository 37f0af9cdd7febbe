"""The pages of the services: what is served, under which headers, and that nothing is loaded from another host."""

import asyncio
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from backends.scripted import ScriptedBackend
from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import AppOptions, create_app
from specpair.http_service.keys.access import DRAFTER, Access, KeyStore
from specpair.http_service.keys.gate import Accounts, Gate
from specpair.http_service.openapi.operation import OWN_ERRORS
from specpair.http_service.replies.json_replies import Failures
from specpair.http_service.replies.static_files import add_docs
from tests.drafter_client.support import serving
from tests.gateway.openai_api.conftest import served
from tests.paths import ROOT
from tests.verifier_server.conftest import LiveServer, settings

FOLDERS = {"drafter": ROOT / "drafter_client" / "serve" / "page", "verifier": ROOT / "verifier_server" / "page"}
SHARED = ROOT / "specpair" / "http_service" / "page"
FILES = {name: [path for folder in (own, SHARED) for path in sorted(folder.iterdir())] for name, own in FOLDERS.items()}
KEY = "s3cret"


@pytest.fixture(scope="module", params=FOLDERS)
def service(request: pytest.FixtureRequest) -> str:
    """Which service it is."""
    return str(request.param)


@pytest.fixture(scope="module")
def http(service: str) -> Iterator[httpx.Client]:
    """A client of a service that wants a key, which is not sent."""
    if service == "verifier":
        live = LiveServer(settings(api_key=KEY), ScriptedBackend())
        live.wait_until_ready()
        yield live.http
        live.close()
        return
    gate = Gate(Access(KeyStore(KEY), names=DRAFTER), Accounts())
    with serving() as verifier:
        pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"))
        app = create_app(pair, Options(), texts=1, queue=1, how=AppOptions(gate=gate))
        with served(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
            yield client


def test_the_page_needs_no_key_and_runs_nothing_from_elsewhere(http: httpx.Client) -> None:
    page = http.get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';") and "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert http.get("/v1/models").status_code == 401


def test_all_that_the_page_names_is_there(http: httpx.Client, service: str) -> None:
    named = set(re.findall(r'(?:href|src)="(page/[\w.]+)"', http.get("/").text))
    for path in FILES[service]:
        named |= {f"page/{name}" for name in re.findall(r'from "\./([\w.]+)"', path.read_text(encoding="utf-8"))}
    assert named == {f"page/{path.name}" for path in FILES[service]} - {"page/index.html"}
    assert {http.get(f"/{name}").status_code for name in named} == {200}
    missing = http.get("/page/none.js")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


def test_what_a_browser_has_is_not_sent_again(http: httpx.Client) -> None:
    first = http.get("/page/main.js")
    again = http.get("/page/main.js", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert http.head("/").status_code == 200


def test_what_happens_is_for_those_with_the_key(http: httpx.Client) -> None:
    assert http.get("/events").status_code == 401


def test_it_works_below_a_path(service: str) -> None:
    """Behind a proxy that strips a prefix, every address has to be relative to the page."""
    for path in FILES[service]:
        assert re.findall(r'(?:href|src)="/|(?:ask|follow|fetch|stream)\(["`]/', path.read_text(encoding="utf-8")) == []


def test_no_text_is_read_as_html(service: str) -> None:
    banned = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|https?://(?!www\.w3\.org/2000/svg)\w"
    )
    for path in FILES[service]:
        if path.suffix != ".svg":
            assert banned.findall(path.read_text(encoding="utf-8")) == [], path.name


def _app() -> FastAPI:
    app = FastAPI(title="a <service>", docs_url=None, redoc_url=None)
    add_docs(app)
    Failures("service", lambda path: OWN_ERRORS).add_to(app)
    return app


async def _checked() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://test") as http:
        page = await http.get("/docs")
        assert page.status_code == 200 and "<title>a &lt;service&gt;</title>" in page.text
        addresses = _Addresses()
        addresses.feed(page.text)
        assert len(addresses.found) == 4 and addresses.inline == []
        for address in addresses.found:
            assert not re.match("[a-z]+:|//", address)
            asset = await http.get(httpx.URL("http://test/docs").join(address))
            assert asset.status_code == 200 and asset.content
            assert asset.headers["x-content-type-options"] == "nosniff"
        start = (await http.get("/docs/start.js")).text
        assert "SwaggerUIBundle(" in start and '"openapi.json"' in start and "validatorUrl: null" in start
        assert "http" not in re.sub(r"<[^>]*>", "", page.text) + start
        policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert (page.headers["x-content-type-options"], page.headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert (await http.get("/docs/other.js")).json()["error"]["code"] == "not_found"


def test_the_page_loads_its_own_files_only() -> None:
    asyncio.run(_checked())


class _Addresses(HTMLParser):
    """Collects the addresses that a page loads, and the scripts that it holds itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value is not None]
        if any(name.startswith("on") for name, _ in attrs) or (tag == "script" and "src" not in dict(attrs)):
            self.inline.append(tag)
