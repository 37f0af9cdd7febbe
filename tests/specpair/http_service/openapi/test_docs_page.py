"""The page `/docs` shows the service's document, and loads nothing from another host."""

import asyncio
import re
from html.parser import HTMLParser

import httpx
from fastapi import FastAPI

from specpair.http_service.openapi import docs_page
from specpair.http_service.openapi.operation import OWN_ERRORS
from specpair.http_service.replies.failures import Failures


def _app() -> FastAPI:
    app = FastAPI(title="a service", docs_url=None, redoc_url=None)
    docs_page.add_to(app)
    Failures("service", lambda path: OWN_ERRORS).add_to(app)
    return app


async def _checked() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://test") as http:
        page = await http.get("/docs")
        assert page.status_code == 200 and "a service" in page.text
        addresses = _Addresses()
        addresses.feed(page.text)
        assert len(addresses.found) == 3
        for address in addresses.found:
            assert not re.match("[a-z]+:|//", address)
            asset = await http.get(httpx.URL("http://test/docs").join(address))
            assert asset.status_code == 200 and asset.content
        assert "http" not in re.sub(r"<[^>]*>", "", page.text).replace("openapi.json", "")
        policy = page.headers["content-security-policy"]
        assert "'self'" in policy and "http" not in policy
        assert (await http.get("/docs/other.js")).json()["error"]["code"] == "not_found"


def test_the_page_loads_its_own_files_only() -> None:
    asyncio.run(_checked())


class _Addresses(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value is not None]
