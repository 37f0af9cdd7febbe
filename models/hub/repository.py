"""The hub's client: lists the files of a repository, and reads ranges of them. Each refusal has its error class.

What a hub answers is bounded: how large, how many pages, how many redirects, and where they may lead.
"""

import json
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from models.errors import AccessDenied, HubError, HubRateLimited, HubUnreachable, ModelNotFound, Offline
from models.hub.cache import HubFile, Listing, RepositoryCache, repositories_in
from specpair.extras import extras_named

TIMEOUT = 30.0  # seconds in which the hub must answer, and go on answering
LONGEST = 120.0  # seconds for a page of a listing
PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before a request that failed for want of a connection is tried again
PATIENCE = 60.0  # seconds, at most, that a request waits for a hub that has had too many
MOST_REDIRECTS = 5  # of one request
MOST_PAGES, MOST_FILES = 500, 100_000  # of a listing
MOST_BYTES = 32 << 20  # of a page of a listing
_log = logging.getLogger("models.hub")
_Result = TypeVar("_Result")


class Patience:
    """The pauses before retries of a request, until it succeeds or time runs out."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        """`wait`: waits some seconds."""
        self._wait, self._pauses, self._left = wait, iter(PAUSES), PATIENCE

    def after(self, error: HubError) -> None:
        """Wait before the next request. Raises `error` if a retry cannot help, or time has run out."""
        pause = next(self._pauses, None)
        if pause is None or isinstance(error, Offline):
            raise error
        if isinstance(error, HubRateLimited):
            if error.seconds is None or error.seconds > self._left:
                raise error
            pause = max(pause, error.seconds)
            self._left -= pause
            _log.warning("the hub has had too many requests from here: the next one is in %g seconds", pause)
        self._wait(pause)


class Hub:
    """A model hub and the cache for it, with the address, token, cache and offline mode that huggingface_hub uses."""

    def __init__(
        self,
        endpoint: str | None = None,
        cache: Path | None = None,
        token: str | bool | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`endpoint`, `cache`, `token`: replace huggingface_hub's; token False: none. `wait`: sleeps for some seconds
        before a retry.

        Raises MissingExtra.
        """
        with extras_named():
            from huggingface_hub import constants, errors, utils
        self._utils = utils
        self._constants = constants
        self._offline_error = errors.OfflineModeIsEnabled
        self._failed = errors.HfHubHTTPError.__bases__[0]  # HTTPError of httpx or httpx2, whichever the library has
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self._cache = Path(cache or constants.HF_HUB_CACHE)
        self._token = token
        self._wait = wait

    def patience(self) -> Patience:
        """The pauses of a new request."""
        return Patience(self._wait)

    def cached(self, repository: str) -> RepositoryCache:
        """The repository's folder in the cache."""
        return RepositoryCache(self._cache, repository)

    def repositories(self) -> list[str]:
        """The names of the repositories in the cache."""
        return repositories_in(self._cache)

    def listing(self, repository: str) -> Listing:
        """The files of a repository at its main revision. Raises HubError."""
        api = f"{self.endpoint}/api/models/{repository}"
        files: list[HubFile] = []
        try:
            listing = Listing(repository, self._json(f"{api}/revision/main", repository)[0]["sha"], ())
            tree, query = f"{api}/tree/{listing.commit}", "recursive=true&expand=false"
            for pages in count():
                if not query:
                    break
                if pages == MOST_PAGES or len(files) > MOST_FILES:
                    raise HubError(
                        f"{repository}: {self.endpoint} lists {len(files)} files on {pages} pages, and more: it is no "
                        "repository of a model"
                    )
                page, following = self._json(f"{tree}?{query}", repository)
                for each in page:
                    if each["type"] == "file":
                        large = each.get("lfs")
                        files.append(HubFile(each["path"], each["size"], large["oid"] if large else each["oid"]))
                query = urlsplit(following).query  # not the address: behind a mirror, it is that of the hub
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise HubError(f"{self.endpoint} answers otherwise than a model hub does ({error!r})") from error
        return replace(listing, files=tuple(files))

    def read(self, listing: Listing, file: HubFile, begin: int, count: int) -> bytes:
        """The bytes of a file from `begin` on: `count`, or fewer at its end. Raises HubError."""
        end = min(begin + count, file.size)

        def ranged() -> bytes:
            with self.ranges(listing, file, begin, end) as (first, pieces):
                held = bytearray()
                while len(held) < end - first and (piece := next(pieces, None)) is not None:
                    held += piece
                return bytes(held[begin - first : end - first])

        return self._tried(ranged) if begin < end else b""

    @contextmanager
    def ranges(self, listing: Listing, file: HubFile, begin: int, end: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """A context with the bytes of a file from `begin` to before `end`, in pieces as they arrive.

        Yields where the first piece begins: at 0, if the hub sends no ranges; and the pieces. Raises HubError.
        """
        url = f"{self.endpoint}/{listing.repository}/resolve/{listing.commit}/{quote(file.path)}"
        what = f"{listing.repository}/{file.path}"
        with self._response(url, what, {"Range": f"bytes={begin}-{end - 1}"}) as response:
            yield begin if response.status_code == 206 else 0, response.iter_raw()

    def _json(self, url: str, repository: str) -> tuple[Any, str]:
        """The JSON of an API's page, and the address of the next page; empty: there is none."""

        def answered() -> tuple[Any, str]:
            with self._response(url, repository, {}) as response:
                body = self._body(response, repository)
                try:
                    return json.loads(body), response.links.get("next", {}).get("url", "")
                except (ValueError, RecursionError) as error:
                    raise HubError(f"{self.endpoint} answers without JSON: is it a model hub? ({error})") from None

        return self._tried(answered)

    def _body(self, response: Any, what: str) -> bytes:
        """The whole body of an answer, without decompression."""
        held, end = bytearray(), time.monotonic() + LONGEST
        for piece in response.iter_raw():
            held += piece
            if len(held) > MOST_BYTES:
                raise HubError(f"{what}: {self.endpoint} answers with more than {MOST_BYTES >> 20} MiB: no hub does")
            if time.monotonic() > end:
                raise HubUnreachable(f"{what}: {self.endpoint} takes longer than {LONGEST:g} s for an answer")
        return bytes(held)

    def _tried(self, ask: Callable[[], _Result]) -> _Result:
        patience = self.patience()
        while True:
            try:
                return ask()
            except (HubUnreachable, HubRateLimited) as error:
                patience.after(error)

    @contextmanager
    def _response(self, url: str, what: str, headers: dict[str, str]) -> Iterator[Any]:
        """A context with the response to a GET. Errors inside it become the same HubErrors."""
        if self._constants.HF_HUB_OFFLINE:
            raise Offline(f"{what} is not in the cache, and HF_HUB_OFFLINE is set: unset it, or fetch the model before")
        # Ranges count the bytes of the file. The library's own headers would tell the hub of the packages here.
        headers = {"User-Agent": "specpair", "Accept-Encoding": "identity", **headers}
        token = self._utils.get_token_to_send(self._token)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        session = self._utils.get_session()
        request = session.build_request("GET", url, headers=headers, timeout=TIMEOUT)
        try:
            for _ in range(1 + MOST_REDIRECTS):
                with closing(session.send(request, stream=True, follow_redirects=False)) as response:
                    if response.status_code >= 400:
                        raise self._refusal(response, what)
                    if response.next_request is None:
                        yield response
                        return
                    request = response.next_request  # without the token, if it leads to another host
                    self._check_redirect(request.url, what)
            raise HubError(f"{what}: {self.endpoint} redirects more than {MOST_REDIRECTS} times: is it a model hub?")
        except self._offline_error as error:
            raise Offline(f"{what}: {error}") from None
        except self._failed as error:
            reason = str(error) or type(error).__name__
            raise HubUnreachable(f"{what}: {self.endpoint} does not answer, or was cut off ({reason})") from error

    def _check_redirect(self, url: Any, what: str) -> None:
        """Raises HubError if a redirect drops encryption, or leads nearer to this machine than the hub is."""
        own = urlsplit(self.endpoint)
        plain = url.scheme != "https" and own.scheme == "https"
        near = _nearness(url.host, socket.AI_NUMERICHOST)  # a proxy may know names that nobody here does
        if plain or url.scheme not in ("http", "https") or (near and near > _nearness(own.hostname or "")):
            raise HubError(f"{what}: {self.endpoint} redirects to {url.scheme}://{url.host}, where no file is fetched")

    def _refusal(self, response: Any, what: str) -> HubError:
        status, code = response.status_code, response.headers.get("X-Error-Code")
        login = "log in with `hf auth login`, or set HF_TOKEN"
        if code == "GatedRepo":
            page = f"{self.endpoint}/{'/'.join(what.split('/')[:2])}"
            return AccessDenied(f"{what} is gated: accept its terms at {page}, then {login}")
        if code == "RepoNotFound":
            hint = f"check how it is spelled; for a private one, {login}"
            return ModelNotFound(f"{self.endpoint} has no model {what}, or it is private: {hint}")
        if status in (401, 403):
            return AccessDenied(f"{what}: the hub refuses it ({status}): {login} of an account that may read it")
        if status == 404:
            return ModelNotFound(f"{self.endpoint} has no {what} (404): check how it is spelled")
        if status == 429:
            seconds = self._pause(response)
            when = f"wait {'some minutes' if seconds is None else f'{seconds} seconds'}, and try again"
            full = f"{what}: the hub has had too many requests from here: {when}; after a login, it allows more"
            return HubRateLimited(full, seconds)
        if status >= 500:
            return HubUnreachable(f"{what}: {self.endpoint} answers {status}: try again later")
        return HubError(f"{what}: {self.endpoint} answers {status}")

    def _pause(self, response: Any) -> int | None:
        """The seconds to wait that an error response states."""
        stated = response.headers.get("Retry-After", "").strip()
        with suppress(ValueError, OverflowError):
            if stated.isdecimal():
                return int(stated)
            return max(0, math.ceil(parsedate_to_datetime(stated).timestamp() - time.time()))
        with suppress(ValueError):
            limit = self._utils.parse_ratelimit_headers(response.headers)
            return None if limit is None else int(limit.reset_in_seconds)
        return None


def _nearness(host: str, flags: int = 0) -> int:
    """How near a host is: 2 for link-local hosts, such as clouds' services for keys; 1 for this machine or a private
    network; 0 for others and unknown names.

    `flags`: of `socket.getaddrinfo`.
    """
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return 1
    with suppress(OSError, UnicodeError):
        found = [ip_address(each[4][0]) for each in socket.getaddrinfo(host, None, flags=flags)]
        return max(2 if each.is_link_local else int(not each.is_global) for each in found)
    return 0
