"""The REST endpoints. For low latency, they read and write bodies without FastAPI's machinery."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.keys.access import Caller
from specpair.http_service.observability.logs import note_session
from specpair.http_service.replies.events import EventStream
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol import messages, response_fields, responses, service_responses
from specpair.protocol.errors import (
    ImplicitSessionRefused,
    InvalidRequest,
    SessionMismatch,
    SpecPairError,
)
from specpair.protocol.http_reply import is_loopback
from verifier_server.api.streams import committed_tokens, summary, text_events
from verifier_server.engine.arrived_drafts import Answer, check_position
from verifier_server.service import Service
from verifier_server.sessions import Session

SESSION_HEADER = "X-Session-Id"


async def prefill(request: Request) -> Response:
    """Open a session with a prompt and get its first token.

    With the header `Accept: text/event-stream`, the reply is an event, and those of the session's stream follow it.
    """
    service, caller = admitted(request)
    sent = await read(request, messages.PrefillRequest)
    message = await service.prepared(sent, caller)
    session_id = _session_id(request, message.session_id)
    session, answer = await service.prefill(message, session_id, caller)
    opened = responses.PrefillResponse(
        session_id=session.id,
        prompt_len=session.prompt_len,
        prompt_ids=session.tokens[sent.prefix.length if sent.prefix else 0 : session.prompt_len],
        position=answer.position,
        tokens=answer.tokens,
        total_tokens=answer.total_tokens,
        finish_reason=answer.finish_reason,
        model=service.engine.info.model_name,
        identity=service.identity,
        vocabulary=service.vocabulary(),
        sampling=response_fields.SamplingReport.of(session.spec),
        self_continue=session.self_continue,
        timing=answer.timing,
        cached_tokens=session.cached_tokens,
        **answer.details._asdict(),
    )
    if "text/event-stream" not in request.headers.get("Accept", ""):
        return _json(opened, session)
    news = committed_tokens(service, session, answer.position + len(answer.tokens), opened)
    return EventStream(news, {SESSION_HEADER: session.id}, service.sessions.in_use(session))


async def verify(request: Request) -> Response:
    """Verify draft tokens against the target model and get the tokens that are committed now."""
    service, caller = admitted(request)
    message = await read(request, messages.VerifyRequest)
    session_id = _session_id(request, message.session_id)
    if session_id is not None:
        session = service.session(session_id, caller)
    else:  # the caller's latest; where callers share an address, as behind a proxy, it could be another caller's
        host = (request.scope.get("server") or ("localhost",))[0]
        if not (service.gate.access.keyed or is_loopback(host)):
            raise ImplicitSessionRefused(
                "session_id is missing: without one the caller's latest session is meant, which is possible only on "
                "loopback or with an API key"
            )
        session = service.latest(caller)
    answer = await service.verifying.one(service.engine, message, session)
    return _json(_verified(answer), session)


async def verify_batch(request: Request) -> Response:
    """`/verify` for several sessions at once: one result or error for each item, in order."""
    service, caller = admitted(request)
    batch = await read(request, messages.BatchRequest)
    items: list[messages.VerifyRequest | SpecPairError] = []
    for number in range(len(batch.items)):
        try:
            items.append(batch.request(number))
        except InvalidRequest as error:
            items.append(error)
    results = await service.verifying.each(service.engine, items, caller.owner)
    replies = [_verified(each) if isinstance(each, Answer) else responses.ErrorResponse.of(each) for each in results]
    return _json(responses.BatchResponse(results=replies))


async def generate(request: Request) -> Response:
    """Generate a whole text, with or without server-side drafting: JSON, or server-sent events with `stream`."""
    service, caller = admitted(request)
    message = await service.prepared(await read(request, messages.GenerateRequest), caller)
    text = service.open_text(message, _session_id(request, message.session_id), caller)
    if message.stream:
        return EventStream(text_events(service, text), {SESSION_HEADER: text.session.id})
    return _json(summary(text, await service.texts.last(text)), text.session)


async def stream_session(request: Request) -> Response:
    """Committed tokens of a session from position `from` on (default: the prompt's end), as server-sent events."""
    service, caller = admitted(request)
    session = service.session(request.path_params["session_id"], caller)
    position = _number(request, "from", "position")
    if position is None:
        position = session.prompt_len
    check_position(len(session.tokens), session.prompt_len, position)
    return EventStream(committed_tokens(service, session, position), held=service.sessions.in_use(session))


async def get_model(request: Request) -> Response:
    """The model: limits, costs, vocabulary fingerprints (`?below=N`: of the first N ids), chat template."""
    service, _ = admitted(request)
    return _json(service.model(_number(request, "below", "number of token ids")))


async def get_vocabulary(request: Request) -> Response:
    """The bytes of every token id, as characters U+0000 to U+00FF, and its class (0 text, 1 control, 2 unused)."""
    service, _ = admitted(request)
    return JsonReply(service.whole_vocabulary())


async def list_sessions(request: Request) -> Response:
    """The sessions of the caller's key. Without a key: all sessions, but no ids, since an id gives access."""
    service, caller = admitted(request)
    keyed = service.gate.access.keyed
    listed = [
        _info(service, session, session.id if keyed else None)
        for session in service.sessions.all()
        if session.lease.owner == caller.owner
    ]
    return _json(service_responses.SessionsResponse(sessions=listed))


async def get_session(request: Request) -> Response:
    """One session. While `/prefill` reads a long prompt, its progress."""
    service, caller = admitted(request)
    session = service.session(request.path_params["session_id"], caller)
    return _json(_info(service, session, session.id))


def _info(service: Service, session: Session, session_id: str | None) -> service_responses.SessionInfo:
    unread = service.engine.prompt_progress(session)
    return service_responses.SessionInfo(
        session_id=session_id,
        prompt_len=session.prompt_len,
        total_tokens=len(session.tokens),
        finish_reason=session.finish_reason,
        resident=service.engine.is_resident(session),
        prompt_read=session.prompt_len if unread is None else unread.read,
    )


async def delete_session(request: Request) -> Response:
    """Delete a session and free its KV cache slot."""
    service, caller = admitted(request)
    session = service.sessions.remove(request.path_params["session_id"], caller.owner)
    note_session(session.id)
    return _json(service_responses.DeletedResponse(session_id=session.id, deleted=True))


def _verified(answer: Answer) -> responses.VerifyResponse:
    """The reply to a verify request."""
    return responses.VerifyResponse(
        position=answer.position,
        accepted=answer.accepted,
        accepted_path=answer.path,
        judged=answer.judged,
        unjudged=answer.unjudged,
        tokens=answer.tokens,
        preds=answer.tokens,
        **answer.details._asdict(),
        total_tokens=answer.total_tokens,
        finish_reason=answer.finish_reason,
        timing=answer.timing,
    )


def _number(request: Request, field: str, what: str) -> int | None:
    """The whole number `field` of the query, or None if it is missing. Raises InvalidRequest; `what` names it there."""
    given = request.query_params.get(field)
    if given is not None and not (given.isascii() and given.isdigit() and len(given) < 10):
        raise InvalidRequest.at(field, f"{given[:20]!r} is not a {what}")
    return None if given is None else int(given)


def admitted(request: Request) -> tuple[Service, Caller]:
    """The application's service, and the caller of a request. Raises Unauthorized, Forbidden and RateLimited."""
    service: Service = request.app.state.service
    return service, service.gate.admit(request)


async def read(request: Request, schema: type[messages.M]) -> messages.M:
    """The request in the body. Raises InvalidRequest, and what `RequestBodies.read` raises."""
    service: Service = request.app.state.service
    return await service.bodies.read(request, partial(messages.parse, schema))


def _session_id(request: Request, in_body: str | None) -> str | None:
    """The session id from the body or the header, if given. Raises SessionMismatch if the two differ."""
    in_header = request.headers.get(SESSION_HEADER)
    if in_header is not None:
        messages.check_session_id(in_header, SESSION_HEADER)
    if in_header is not None and in_body is not None and in_header != in_body:
        raise SessionMismatch(f"{SESSION_HEADER} says {in_header}, the body says {in_body}")
    session_id = in_body or in_header
    if session_id is not None:
        note_session(session_id)  # also for the log of a request that will be refused
    return session_id


def _json(reply: response_fields.Response, session: Session | None = None) -> Response:
    return JsonReply(reply.body(), headers=None if session is None else {SESSION_HEADER: session.id})
