"""A model hub over real HTTP: listings, files by ranges behind a redirect, refusals, cuts and damage on request."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_right"
_PAGE = 3  # files in a page of a listing


@dataclass(frozen=True)
class Asked:
    """A request. `host`: the name that the client called the server by."""

    path: str
    range: str | None
    token: str | None
    host: str


class HubStandIn(ThreadingHTTPServer):
    """Files that end with .gguf or .safetensors are large: a redirect leads to them, under another host name."""

    daemon_threads = True

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = {name: dict(files) for name, files in repositories.items()}
        self.commit = COMMIT
        self.asked: list[Asked] = []
        self.sent: Counter[str] = Counter()  # bytes of each file's content
        self.cuts: list[int] = []  # after how many bytes of a large file the connection is cut, for the next ones
        self.damage = 0  # how many of the next large files have a wrong byte
        self.wrong: set[str] = set()  # the paths of files that always have one
        self.refusals: list[tuple[int, dict[str, str]]] = []  # statuses and headers of the next answers
        self.answers: list[tuple[int, dict[str, str], bytes]] = []  # the same with bodies
        self.gated: set[str] = set()
        self.ranges = True  # whether it sends ranges
        self.holds: int | None = None  # after how many bytes of a large file it sends no more, until `go_on`
        self.go_on = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def counted(self, what: str) -> int:
        """How many requests had this in their path."""
        return sum(what in each.path for each in self.asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubStandIn

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        hub, url = self.server, urlsplit(self.path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        hub.asked.append(Asked(self.path, self.headers.get("Range"), token, self.headers["Host"].partition(":")[0]))
        if hub.refusals:
            status, headers = hub.refusals.pop(0)
            return self._answer(status, b"", headers)
        if hub.answers:
            status, headers, body = hub.answers.pop(0)
            return self._answer(status, body, headers)
        words = unquote(url.path).strip("/").split("/")
        if words[0] == "large":
            return self._content("/".join(words[1:3]), "/".join(words[3:]))
        repository = "/".join(words[2:4] if words[0] == "api" else words[:2])
        files = hub.repositories.get(repository)
        if files is None:
            return self._answer(401, b"", {"X-Error-Code": "RepoNotFound"})
        if words[0] == "api":
            tree = words[4] == "tree"
            return self._tree(files, url.query) if tree else self._json({"id": repository, "sha": hub.commit})
        if repository in hub.gated and token != TOKEN:
            return self._answer(401 if token is None else 403, b"", {"X-Error-Code": "GatedRepo"})
        path = "/".join(words[4:])
        if path not in files:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        listed = _listed(path, files[path])
        blob = listed.get("lfs", listed)["oid"]
        headers = {"X-Repo-Commit": hub.commit, "ETag": f'"{blob}"', "X-Linked-Etag": f'"{blob}"'}
        if not _large(path):
            return self._content(repository, path, headers)
        headers["X-Linked-Size"] = str(listed["size"])
        headers["Location"] = f"http://localhost:{hub.server_port}/large/{repository}/{path}"
        return self._answer(302, b"", headers)

    do_HEAD = do_GET  # noqa: N815

    def _tree(self, files: Mapping[str, bytes], query: str) -> None:
        begin = int(parse_qs(query).get("cursor", ["0"])[0])
        names = list(files)
        page = [_listed(name, files[name]) for name in names[begin : begin + _PAGE]]
        following = f'<http://elsewhere.invalid/tree?recursive=true&cursor={begin + _PAGE}>; rel="next"'
        self._json(page, {"Link": following} if begin + _PAGE < len(names) else {})

    def _json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _content(self, repository: str, path: str, about: Mapping[str, str] | None = None) -> None:
        hub, content = self.server, self.server.repositories[repository][path]
        if path in hub.wrong or (_large(path) and hub.damage > 0):
            hub.damage = max(0, hub.damage - 1)
            content = content[:-1] + bytes([content[-1] ^ 1])
        status, headers, begin, end = 200, dict(about or {}), 0, len(content)
        asked = self.headers.get("Range")
        if asked is not None and hub.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1 if last else end, end)
            status, headers["Content-Range"] = 206, f"bytes {begin}-{end - 1}/{len(content)}"
        large = _large(path)
        cut = hub.cuts.pop(0) if large and hub.cuts else None
        self._answer(status, content[begin:end], headers, cut, hub.holds if large else None, path)

    def _answer(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str],
        cut: int | None = None,
        hold: int | None = None,
        path: str | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        first = body if cut is None and hold is None else body[: cut if cut is not None else hold]
        if path is not None:
            self.server.sent[path] += len(first)  # before it is sent: the client may be done before this thread goes on
        try:
            self.wfile.write(first)
            if cut is None and hold is not None:
                self.server.go_on.wait()
                self.wfile.write(body[hold:])
        except ConnectionError:
            self.close_connection = True  # the client has seen enough, or was killed
        if cut is not None:
            self.close_connection = True


def _large(path: str) -> bool:
    return path.endswith((".gguf", ".safetensors"))


@cache  # a real model takes seconds
def _hashes(content: bytes) -> tuple[str, str]:
    """The hash by which git names a file, and that of a large one."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(), hashlib.sha256(content).hexdigest()


def _listed(path: str, content: bytes) -> dict[str, Any]:
    small, large = _hashes(content)
    listed: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": small}
    if _large(path):
        listed["lfs"] = {"oid": large, "size": len(content), "pointerSize": 130}
    return listed


@contextmanager
def serving(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[HubStandIn]:
    """A context in which a stand-in answers."""
    with HubStandIn(repositories) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.go_on.set()
            hub.shutdown()
            thread.join()
