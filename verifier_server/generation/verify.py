"""Guesses as they are asked for: what has to go with a session, where one begins that does not say so, many at once."""

from collections.abc import Sequence
from contextlib import ExitStack

from starlette.types import Receive

from speculation.acceptance import draft_probs
from speculation.acceptance.draft_probs import Weights
from speculation.errors import InvalidRequest, SelfContinueRefused, SpecPairError
from speculation.protocol import messages
from verifier_server.engine.engine import Engine
from verifier_server.engine.requests import Answer, check_number
from verifier_server.generation.engine_client import EngineClient, Pending
from verifier_server.generation.prompts import check_ids
from verifier_server.sessions import Session, SessionTable


class Verifying:
    """Has guesses judged. Used in the event loop.

    A client that hangs up, as `receive` tells, is waited for no more; its session stays.
    """

    def __init__(self, asking: EngineClient, sessions: SessionTable) -> None:
        self._asking, self._sessions = asking, sessions

    async def one(self, engine: Engine, request: messages.VerifyRequest, session: Session, receive: Receive) -> Answer:
        """Judge a guess. Without a position, the session's cursor stands in and moves on.

        Raises TokenOutOfRange, TooManyDrafts, InvalidRequest, SelfContinueRefused, and what the engine answers.
        """
        with self._sessions.in_use(session):
            answer = await self._asking.answer(self._ask(engine, request, session), receive)
        _move_on(request, session, answer)
        return answer

    async def each(
        self, engine: Engine, requests: Sequence[messages.VerifyRequest | SpecPairError], owner: str, receive: Receive
    ) -> list[Answer | SpecPairError]:
        """The same for guesses that name their sessions, all of one owner, side by side: they share passes.

        What is wrong with one, from the first or later, is its own result.
        """
        results: list[Answer | SpecPairError] = []
        with ExitStack() as in_use:
            asked = [self._try(engine, request, owner, in_use) for request in requests]
            answers = iter(await self._asking.wait([each for each in asked if isinstance(each, Pending)], receive))
        for request, each in zip(requests, asked, strict=True):
            result = next(answers) if isinstance(each, Pending) else each
            if isinstance(each, Pending) and isinstance(request, messages.VerifyRequest) and isinstance(result, Answer):
                _move_on(request, each.request.session, result)
            results.append(result)
        return results

    def _try(
        self, engine: Engine, request: messages.VerifyRequest | SpecPairError, owner: str, in_use: ExitStack
    ) -> Pending | SpecPairError:
        if isinstance(request, SpecPairError):
            return request
        try:
            session = self._sessions.get(str(request.session_id), owner)
            in_use.enter_context(self._sessions.in_use(session))
            return self._ask(engine, request, session)
        except SpecPairError as error:
            return error

    def _ask(self, engine: Engine, request: messages.VerifyRequest, session: Session) -> Pending:
        position, proposals = _read(engine, request, session)
        return self._asking.ask(
            engine,
            session,
            position,
            request.draft_tokens,
            proposals=proposals,
            next_in=seconds(request.next_in_ms),
            goes_on=request.self_continue,
        )


def implicit(field: str) -> SelfContinueRefused:
    """The refusal of a guess that leaves a field out."""
    return SelfContinueRefused(
        f"{field} is missing: the verifier goes on with this session by itself, so say what is meant", param=field
    )


def seconds(milliseconds: float | None) -> float | None:
    """As the engine counts, of what messages say."""
    return None if milliseconds is None else milliseconds / 1e3


def _read(engine: Engine, request: messages.VerifyRequest, session: Session) -> tuple[int, list[Weights]]:
    """Where a guess begins, and what its drafts were drawn from if that is said."""
    check_ids(engine.backend, "draft_tokens", request.draft_tokens)
    if session.self_continue:
        if request.position is None:
            raise implicit("position")
    elif request.self_continue is not None:
        raise SelfContinueRefused(
            "self_continue: the session was opened without; ask for it in the prefill", param="self_continue"
        )
    position = session.cursor if request.position is None else request.position
    return position, _proposals(engine, request, session)


def _proposals(engine: Engine, request: messages.VerifyRequest, session: Session) -> list[Weights]:
    sent = request.draft_probs
    if session.strategy.draws:
        if sent is None and request.draft_tokens:
            raise InvalidRequest(
                "draft_probs: Field required with the strategy probabilistic: what each draft token was drawn from",
                param="draft_probs",
            )
        check_number(len(request.draft_tokens), engine.max_drafts)  # first: of thousands they would take long to read
        return draft_probs.read(sent or [], request.draft_tokens, engine.backend.vocabulary.size)
    if sent is not None:
        raise InvalidRequest(
            f"draft_probs: the strategy {session.strategy} makes no use of them: leave them out", param="draft_probs"
        )
    return []


def _move_on(request: messages.VerifyRequest, session: Session, answer: Answer) -> None:
    """The cursor follows an answer to a guess that left its position to it."""
    if request.position is None:
        session.cursor = min(answer.position + max(answer.accepted, 1), answer.total_tokens)
