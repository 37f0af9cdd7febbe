"""The fields of a request by which the router chooses a node, and the headers that the node gets."""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice
from typing import Annotated, NamedTuple
from urllib.parse import unquote

from pydantic import AliasPath, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import from_json, to_json

from gateway.router.connections import Headers
from specpair.http_service.hints import HEADER as IGNORED
from specpair.http_service.observability.logs import HEADER as REQUEST_ID
from specpair.http_service.observability.logs import current
from specpair.protocol.http_reply import ReplyHead

_MODELS = b"/models/"  # before the path of a request for one of several models
_MOST_PARTS = 16  # of a model's name with slashes
_BEGIN = ("/prefill", "/generate")  # of a verifier's paths: these begin a text
_PROMPT = ("system", "instructions", "prompt", "prompt_ids", "messages", "input")  # where requests have their prompts
_SHORTEST, _LONGEST = 256, 65_536  # bytes of a prompt's JSON that are a prefix
BATCH = "/verify/batch"
_IN_SESSION = ("/prefill", "/verify", "/generate", BATCH)  # these may name the session in the body alone


class RoutedRequest(NamedTuple):
    """A request."""

    path: str  # without the model, and without a slash at its end; decoded
    target: bytes  # the same as the client has written it
    model: str | None  # that it names; None: none, so far
    session: str  # its id; empty: none, so far
    openai: bool  # whether it is for OpenAI's interface or Anthropic's
    prefixes: tuple[str, ...] = ()  # of its prompt, as `NewText` has them, where the policy looks at them

    @property
    def begins(self) -> bool:
        """Whether it begins a text, which any node may take, or repeats or resumes a text."""
        return self.path in _BEGIN or self.openai

    @property
    def needs_session(self) -> bool:
        """Whether the body should be looked at for a session."""
        return not self.session and self.path in _IN_SESSION


def routed(target: bytes, session: str, is_model: Callable[[str], bool]) -> RoutedRequest:
    """What a request asks for.

    `target`: its path, as the client has written it.
    `session`: its header X-Session-Id; empty: there is none.
    `is_model`: whether a node has a model of this name.
    """
    model = None
    if target.startswith(_MODELS):
        model, target = _without_model(target.removeprefix(_MODELS), is_model)
    path = _decoded(target).rstrip("/")
    if path.startswith("/sessions/") and not session:
        session = path.split("/")[2]
    if path.startswith("/v1/models/"):
        model = path.removeprefix("/v1/models/")
    return RoutedRequest(path, target, model, session, path.startswith("/v1/"))


def _without_model(rest: bytes, is_model: Callable[[str], bool]) -> tuple[str, bytes]:
    """A model's name, and the path behind it. A name may have slashes, written as such or as %2F: the longest name that
    a node has is meant. If no node has any, the name ends before the first slash."""
    cuts = [*islice((at for at, sign in enumerate(rest) if sign == ord("/")), _MOST_PARTS), len(rest)]
    named = (cut for cut in reversed(cuts) if is_model(_decoded(rest[:cut])))
    cut = next(named, cuts[0])
    return _decoded(rest[:cut]), rest[cut:] or b"/"


def _decoded(path: bytes) -> str:
    return unquote(path.decode(errors="replace"))


_Text = Annotated[str | None, BeforeValidator(lambda given: given if isinstance(given, str) else None)]


class RoutedFields(BaseModel):
    """Fields read from a body. The node checks the rest."""

    model: _Text = None
    session_id: _Text = None
    earlier: _Text = Field(None, validation_alias=AliasPath("prefix", "session_id"))  # that of an earlier text


def routing_fields(body: bytes) -> RoutedFields:
    """Fields of a body in JSON. The parser skips others, at about a gigabyte a second."""
    try:
        return RoutedFields.model_validate_json(body)
    except ValidationError:  # also what is no JSON: the node says so
        return RoutedFields()


def sessions_of(body: bytes) -> list[str]:
    """The sessions of the items in the body of a batch."""
    try:
        items = from_json(body)["items"]
    except (ValueError, KeyError, TypeError):
        return []
    named = [each.get("session_id") for each in (items if isinstance(items, list) else []) if isinstance(each, dict)]
    return [each for each in named if isinstance(each, str)]


def prefixes(body: bytes) -> tuple[str, ...]:
    """Keys of the first 256, 512, 1,024, … bytes of the prompt in a body in JSON, as far as it goes, the longest first.

    Texts with a key in common have prompts that begin alike. A chat's next turn has all keys of the last one.
    """
    try:
        content = from_json(body)
    except ValueError:
        return ()
    if not isinstance(content, dict):
        return ()
    prompt = to_json([content.get(name) for name in _PROMPT])
    found, hashed, read, length = [], blake2b(digest_size=8), 0, _SHORTEST
    while length <= min(len(prompt), _LONGEST):
        hashed.update(prompt[read:length])
        found.append(hashed.hexdigest())
        read, length = length, 2 * length
    return tuple(reversed(found))


SESSION = b"x-session-id"
_FORWARDED_FOR = b"x-forwarded-for"
_POLICY = b"content-security-policy"
_OF_ONE_HOP = frozenset(  # RFC 9110, section 7.6.1; what the connections have of their own
    (b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
# Those that the connection to the node sets itself; and Origin, which this service has checked: a node would compare it
# with its own name.
_REPLACED = _OF_ONE_HOP | {b"host", b"content-length", b"expect", b"origin", REQUEST_ID, _FORWARDED_FOR}
_KEYS = frozenset((b"authorization", b"x-api-key"))
# The headers that services reply with. All else is dropped: cookies and what a browser does with all pages of an origin
# (`Set-Cookie`, `Clear-Site-Data`, `Strict-Transport-Security`, `Alt-Svc`) are of the router.
_FOR_CLIENTS = frozenset(
    (
        *(b"content-type", b"content-length", b"content-encoding", b"vary", b"cache-control", b"etag"),
        *(b"retry-after", b"allow", b"accept-encoding", b"www-authenticate", SESSION, b"x-accel-buffering"),
        *(_POLICY, b"referrer-policy", IGNORED),
    )
)


def to_node(headers: Headers, client: str | None, key: str | None) -> list[tuple[bytes, bytes]]:
    """The headers that a node gets.

    `client`: the other end of the connection; None on a UNIX socket.
    `key`: the nodes' own, in place of the caller's; None: the caller's is passed on.
    """
    dropped = _without_hops(headers, _REPLACED if key is None else _REPLACED | _KEYS)
    kept = [each for each in headers if each[0] not in dropped]
    if key is not None:
        kept.append((b"authorization", b"Bearer " + key.encode()))
    hops = [value for name, value in headers if name == _FORWARDED_FOR]
    if client is not None:
        hops.append(client.encode())
    if hops:
        kept.append((_FORWARDED_FOR, b", ".join(hops)))
    if (context := current()) is not None:
        kept.append((REQUEST_ID, context.request_id.encode()))
    return kept


def to_client(head: ReplyHead) -> list[tuple[bytes, bytes]]:
    """The headers that the client gets. Browsers show no other content as a node's page."""
    dropped = _without_hops(head.headers, frozenset((b"content-length",) if head.status == 204 else ()))
    kept = [each for each in head.headers if each[0] in _FOR_CLIENTS and each[0] not in dropped]
    kept.append((b"x-content-type-options", b"nosniff"))
    if not any(name == _POLICY for name, _ in kept):
        kept.append((_POLICY, b"default-src 'none'; frame-ancestors 'none'"))
    return kept


def value_of(headers: Headers, name: bytes) -> str:
    """The value of the first header of a name; empty: there is none."""
    return next((value.decode("latin-1") for each, value in headers if each == name), "")


def _without_hops(headers: Headers, dropped: frozenset[bytes]) -> frozenset[bytes]:
    """`dropped`, and the headers that Connection names."""
    named: Iterable[bytes] = (value for name, value in headers if name == b"connection")
    further = {part.strip().lower() for value in named for part in value.split(b",")}
    return dropped | further if further else dropped
