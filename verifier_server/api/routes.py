"""The REST endpoints: HTTP in, HTTP out. Bodies are read and written by hand where a round trip counts."""

import ipaddress

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from speculation.errors import (
    Forbidden,
    ImplicitSessionRefused,
    InvalidRequest,
    SessionMismatch,
    SpecPairError,
    Unauthorized,
)
from speculation.protocol import messages
from speculation.protocol.positions import check_position
from verifier_server.access import Access, Caller
from verifier_server.api.generate_responses import summary, text_events
from verifier_server.api.request_body import read_body
from verifier_server.api.server_sent_events import HEADERS, HEARTBEAT, MEDIA_TYPE, CommittedStream, encode
from verifier_server.engine.requests import Answer
from verifier_server.service import Service
from verifier_server.sessions import Session

SESSION_HEADER = "X-Session-Id"


def add_to(app: FastAPI) -> None:
    """Register every endpoint, with and without the trailing slash. `openapi.OPERATIONS` describes them."""
    for path, method, endpoint in (
        ("/prefill", "POST", prefill),
        ("/verify", "POST", verify),
        ("/verify/batch", "POST", verify_batch),
        ("/generate", "POST", generate),
        ("/tokenize", "POST", tokenize),
        ("/health", "GET", health),
        ("/model", "GET", model),
        ("/vocabulary", "GET", vocabulary),
        ("/sessions", "GET", list_sessions),
        ("/sessions/{session_id}", "DELETE", delete_session),
        ("/sessions/{session_id}/stream", "GET", stream),
    ):
        app.add_api_route(path, endpoint, methods=[method])
        app.add_api_route(path + "/", endpoint, methods=[method])


async def prefill(request: Request) -> Response:
    """Open a session with a prompt and get its first token."""
    service = _service(request)
    message = messages.parse(messages.PrefillRequest, await _body(request))
    session_id = _session_id(request, message.session_id)
    session, answer = await service.prefill(message, session_id, _caller(request), request.receive)
    backend = service.engine.backend
    body = {
        "session_id": session.id,
        "prompt_len": session.prompt_len,
        "prompt_ids": session.tokens[: session.prompt_len],
        "position": answer.position,
        "tokens": answer.tokens,
        "total_tokens": answer.total_tokens,
        "finish_reason": answer.finish_reason,
        "model": backend.model_name,
        "vocabulary": service.vocabulary(),
        "sampling": messages.sampling_body(session.sampling, session.strategy, session.threshold),
        "self_continue": session.self_continue,
        "timing": answer.timing,
    }
    if answer.decisions is not None:
        body["decisions"] = answer.decisions
    return _json(encode(body), session)


async def verify(request: Request) -> Response:
    """Compare a guess with what the target model says, and get the tokens that are now certain."""
    service = _service(request)
    message = messages.parse(messages.VerifyRequest, await _body(request))
    session_id = _session_id(request, message.session_id)
    if session_id is None:
        _allow_implicit(request)
        session = service.latest(_caller(request))
    else:
        session = service.session(session_id, _caller(request))
    answer = await service.verifying.one(service.engine, message, session, request.receive)
    return _json(_verdict(answer), session)


async def verify_batch(request: Request) -> Response:
    """`/verify` for several sessions at once: each item is answered, or refused, by itself, in order."""
    service = _service(request)
    batch = messages.parse(messages.BatchRequest, await _body(request))
    items = [_item(batch, number) for number in range(len(batch.items))]
    results = await service.verifying.each(service.engine, items, _caller(request).owner, request.receive)
    bodies = [_verdict(each) if isinstance(each, Answer) else encode(each.body()) for each in results]
    return Response(f'{{"results":[{",".join(bodies)}]}}'.encode(), media_type="application/json")


async def generate(request: Request) -> Response:
    """A whole text, by the target alone or drafted here, too: JSON, or server-sent events with `stream`."""
    service = _service(request)
    message = messages.parse(messages.GenerateRequest, await _body(request))
    text = service.open_text(message, _session_id(request, message.session_id), _caller(request))
    named = {SESSION_HEADER: text.session.id}
    if message.stream:
        answers = service.texts.each(text, HEARTBEAT)
        return StreamingResponse(text_events(text, answers), media_type=MEDIA_TYPE, headers=HEADERS | named)
    return JSONResponse(summary(text, await service.texts.last(text, request.receive)), headers=named)


async def stream(request: Request) -> Response:
    """Committed tokens of a session from the position `from` on (the prompt's end), as server-sent events."""
    service = _service(request)
    session = service.session(request.path_params["session_id"], _caller(request))
    position = _number(request, "from", "position")
    if position is None:
        position = session.prompt_len
    check_position(len(session.tokens), session.prompt_len, position)
    return CommittedStream(service, session, position)


async def health(request: Request) -> Response:
    """Whether the model is ready; 503 while it loads, with its progress.

    Needs no key. Who is served nothing else hears no more than that, and in `access` why.
    """
    try:
        body = _service(request).health()
    except (Unauthorized, Forbidden) as error:
        service: Service = request.app.state.service
        body = {key: value for key, value in service.health().items() if key in ("status", "progress")}
        body["access"] = error.code
        if body["status"] == "failed":
            body["reason"] = "its log says why"
    return JSONResponse(body, status_code=200 if body["status"] == "ready" else 503)


async def model(request: Request) -> Response:
    """What is served: limits, costs, vocabulary fingerprints (`?below=N`: of the first N ids), chat template."""
    service = _service(request)
    return JSONResponse(service.model(_number(request, "below", "number of token ids")))


async def vocabulary(request: Request) -> Response:
    """The bytes of every token id, as characters U+0000 to U+00FF, and its class (0 text, 1 control, 2 unused)."""
    return Response(_service(request).whole_vocabulary(), media_type="application/json")


async def tokenize(request: Request) -> Response:
    """Token ids of a text, as the target reads it."""
    service = _service(request)
    message = messages.parse(messages.TokenizeRequest, await _body(request))
    return JSONResponse({"token_ids": service.tokenize(message)})


async def list_sessions(request: Request) -> Response:
    """The key's sessions. Without a key all that are held, but no ids: who knows one has the session."""
    service, caller = _service(request), _caller(request)
    keyed = service.access.keyed
    listed = [
        {
            **({"session_id": session.id} if keyed else {}),
            "prompt_len": session.prompt_len,
            "total_tokens": len(session.tokens),
            "finish_reason": session.finish_reason,
            "resident": session.row is not None,
        }
        for session in service.sessions.all()
        if session.owner == caller.owner
    ]
    return JSONResponse({"sessions": listed})


async def delete_session(request: Request) -> Response:
    """Forget a session and free its KV row."""
    sessions = _service(request).sessions
    session = sessions.remove(request.path_params["session_id"], _caller(request).owner)
    return JSONResponse({"session_id": session.id, "deleted": True})


def _item(batch: messages.BatchRequest, number: int) -> messages.VerifyRequest | SpecPairError:
    try:
        return batch.guess(number)
    except InvalidRequest as error:
        return error


def _verdict(answer: Answer) -> str:
    """The reply to a guess."""
    tokens = ",".join(map(str, answer.tokens))
    ended = "null" if answer.finish_reason is None else f'"{answer.finish_reason}"'
    decisions = "" if answer.decisions is None else f'"decisions":{encode(answer.decisions)},'
    unjudged = f'"unjudged":{answer.unjudged},' if answer.unjudged else ""
    return (
        f'{{"position":{answer.position},"accepted_prefix_len":{answer.accepted},"judged":{answer.judged},{unjudged}'
        f'"tokens":[{tokens}],"preds":[{tokens}],{decisions}"total_tokens":{answer.total_tokens},'
        f'"finish_reason":{ended},"timing":{{"queue_ms":{answer.queue_ms:.3f},"forward_ms":{answer.forward_ms:.3f},'
        f'"sessions":{answer.sessions}}}}}'
    )


def _number(request: Request, field: str, what: str) -> int | None:
    """A whole number from the query; None when it is not there."""
    given = request.query_params.get(field)
    if given is not None and not (given.isascii() and given.isdigit() and len(given) < 10):
        raise InvalidRequest(f"{field}: {given[:20]!r} is not a {what}", param=field)
    return None if given is None else int(given)


def _service(request: Request) -> Service:
    """The service, for a caller who may use it. Raises Unauthorized and Forbidden."""
    _caller(request)
    service: Service = request.app.state.service
    return service


async def _body(request: Request) -> bytes:
    settings = request.app.state.service.settings
    return await read_body(request, settings.max_body_bytes, settings.body_timeout)


def _session_id(request: Request, in_body: str | None) -> str | None:
    in_header = request.headers.get(SESSION_HEADER)
    if in_header is not None:
        messages.check_session_id(in_header, SESSION_HEADER)
    if in_header is not None and in_body is not None and in_header != in_body:
        raise SessionMismatch(f"{SESSION_HEADER} says {in_header}, the body says {in_body}")
    return in_body or in_header


def _caller(request: Request) -> Caller:
    """In whose name the request comes. Raises Unauthorized and Forbidden."""
    access: Access = request.app.state.service.access
    headers = request.headers
    forwarded = [*headers.getlist("x-forwarded-for"), *headers.getlist("forwarded")]
    return access.admit(request.client.host if request.client else None, headers.get("authorization", ""), forwarded)


def _allow_implicit(request: Request) -> None:
    """Behind a proxy or on a shared address, "the caller's latest session" may be somebody else's."""
    if request.app.state.service.access.keyed:
        return
    host = (request.scope.get("server") or ("localhost",))[0]
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise ImplicitSessionRefused(
            "session_id is missing: without one the caller's latest session is meant, which is possible only on "
            "loopback or with an API key"
        )


def _json(body: str, session: Session) -> Response:
    return Response(body.encode(), media_type="application/json", headers={SESSION_HEADER: session.id})
