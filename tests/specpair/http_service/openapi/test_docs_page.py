"""The page `/docs` shows the service's document, and loads nothing from another host."""

import asyncio
import re
from html.parser import HTMLParser

import httpx
from fastapi import FastAPI

from specpair.http_service.openapi.operation import OWN_ERRORS
from specpair.http_service.replies.json_replies import Failures
from specpair.http_service.replies.static_files import add_docs


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
