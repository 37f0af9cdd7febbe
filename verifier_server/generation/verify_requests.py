"""Checks `/verify` requests against their sessions, and has the engine judge the drafts."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from specpair.protocol import messages
from specpair.protocol.errors import InvalidRequest, SelfContinueRefused, SpecPairError
from specpair.speculation.acceptance.draft_probs import MOST_IDS, Weights
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.processors import token_id
from verifier_server.engine.arrived_drafts import Answer, Request, check_number
from verifier_server.engine.interface import TokenEngine
from verifier_server.generation.engine_client import Accounting, EngineClient
from verifier_server.generation.prompts import check_ids
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

MOST_IN_A_REQUEST = 8192  # ids, unless `MOST_IDS` for each draft token are more
_OFF = 1e-3  # tolerance of the weights' sum around 1; rounding stays far below it


class Verifying:
    """Has the engine judge drafts. Used in the event loop.

    Requests whose wait is cancelled are dropped; the session stays.
    """

    def __init__(self, client: EngineClient, sessions: SessionTable, accounting: Accounting) -> None:
        self._client, self._sessions, self._accounting = client, sessions, accounting

    async def one(self, engine: TokenEngine, request: messages.VerifyRequest, session: Session) -> Answer:
        """Judge a draft. If the request has no position, the session's cursor is used and moved on.

        Raises TokenOutOfRange, TooManyDrafts, InvalidRequest, SelfContinueRefused, and the errors of the engine.
        """
        with self._sessions.in_use(session):
            answer = await self._client.answer(engine, _engine_request(engine, request, session))
        self._accounting.answered(session, answer)
        _move_cursor(request, session, answer)
        return answer

    async def each(
        self, engine: TokenEngine, requests: Sequence[messages.VerifyRequest | SpecPairError], owner: str
    ) -> list[Answer | SpecPairError]:
        """Judge the drafts of several requests that name their sessions, all of one owner; they share passes.

        Each result is an answer or an error, whether the request was invalid from the start or failed later.
        """
        with ExitStack() as in_use:
            prepared = [self._prepare(engine, request, owner, in_use) for request in requests]
            valid = [each for each in prepared if isinstance(each, Request)]
            answers = iter(await self._client.results(engine, valid))
        results = [next(answers) if isinstance(each, Request) else each for each in prepared]
        for request, each, result in zip(requests, prepared, results, strict=True):
            if isinstance(request, messages.VerifyRequest) and isinstance(each, Request) and isinstance(result, Answer):
                self._accounting.answered(each.session, result)
                _move_cursor(request, each.session, result)
        return results

    def _prepare(
        self, engine: TokenEngine, request: messages.VerifyRequest | SpecPairError, owner: str, in_use: ExitStack
    ) -> Request | SpecPairError:
        if isinstance(request, SpecPairError):
            return request
        try:
            session = self._sessions.get(str(request.session_id), owner)
            in_use.enter_context(self._sessions.in_use(session))
            return _engine_request(engine, request, session)
        except SpecPairError as error:
            return error


def needs_position_and_session(field: str) -> SelfContinueRefused:
    """The error for a request that leaves out `field`, which a session with self-continuation needs."""
    return SelfContinueRefused(f"{field} is missing: with self_continue every verify request must give it", param=field)


def _engine_request(engine: TokenEngine, request: messages.VerifyRequest, session: Session) -> Request:
    """The engine's form of a request. Raises the errors of `Verifying.one`, except those of the engine."""
    check_ids(engine.info, "draft_tokens", request.draft_tokens)
    if session.self_continue:
        if request.position is None:
            raise needs_position_and_session("position")
    elif request.self_continue is not None:
        raise SelfContinueRefused.at("self_continue", "the session does not self-continue: ask for it in the prefill")
    position = session.cursor if request.position is None else request.position
    draft = Draft.chain(position, request.draft_tokens, _probs(engine, request, session))
    if request.draft_parents is not None:
        draft = draft.with_parents(_parents(request.draft_parents, request.draft_tokens, session.strategy))
    return Request(session, draft, policy=request.policy)


def _probs(engine: TokenEngine, request: messages.VerifyRequest, session: Session) -> list[Weights]:
    sent = request.draft_probs
    if session.strategy.draws:
        if sent is None and request.draft_tokens:
            what = "Field required with the strategy probabilistic: what each draft token was drawn from"
            raise InvalidRequest.at("draft_probs", what)
        # This comes before the distributions: reading thousands takes long.
        check_number(len(request.draft_tokens), engine.info.max_drafts)
        return read_distributions(sent or [], request.draft_tokens, engine.info.vocabulary.size)
    if sent is not None:
        raise InvalidRequest.at("draft_probs", f"the strategy {session.strategy} makes no use of them: leave them out")
    return []


def _move_cursor(request: messages.VerifyRequest, session: Session, answer: Answer) -> None:
    """If the request gave no position, move the cursor past the accepted draft tokens, or past one token."""
    if request.position is None:
        session.cursor = min(answer.position + max(answer.accepted, 1), answer.total_tokens)


def _parents(sent: Sequence[int], drafts: Sequence[int], strategy: Strategy) -> Sequence[int]:
    """The `draft_parents` of a verify request: for each draft token, the distance back to its parent.

    Raises InvalidRequest that names the item and what is wrong with it.
    """
    _one_for_each("draft_parents", sent, drafts)
    first: dict[tuple[int, int], int] = {}  # by parent and id, the index of the draft token
    for index, (token, back) in enumerate(zip(drafts, sent, strict=True)):
        if not 1 <= back <= index + 1:
            raise InvalidRequest.at(
                f"draft_parents.{index}",
                f"{back} is not 1 to {index + 1}: {index} draft tokens stand before this one, and {index + 1} means "
                "that it follows the text",
            )
        other = first.setdefault((index - back, token), index)
        if other != index:
            what = f"token {token} follows the same token as draft_tokens.{other}, which is equal: send it once"
            raise InvalidRequest.at(f"draft_tokens.{index}", what)
    if not strategy.takes_trees and any(back != 1 for back in sent):
        raise InvalidRequest.at(
            "draft_parents",
            f"the strategy {strategy} takes no trees: it accepts any draft token that is likely enough, so the text "
            "would depend on which of several comes first: send a chain",
        )
    return sent


def _one_for_each(field: str, sent: Sequence[object], drafts: Sequence[int]) -> None:
    if len(sent) != len(drafts):
        what = f"there are {len(sent)} of them for {len(drafts)} draft_tokens: send one for each"
        raise InvalidRequest.at(field, what)


def read_distributions(
    sent: Sequence[Mapping[str, float]], drafts: Sequence[int], vocabulary_size: int
) -> list[Weights]:
    """The distributions in `draft_probs` of a verify request, one for each of its draft tokens.

    Raises InvalidRequest that names the item and what is wrong with it.
    """
    _one_for_each("draft_probs", sent, drafts)
    ids, most = sum(map(len, sent)), max(MOST_IN_A_REQUEST, MOST_IDS * len(drafts))
    if ids > most:
        what = f"{ids} ids for {len(drafts)} draft_tokens, at most {most} are taken: draw from fewer"
        raise InvalidRequest.at("draft_probs", what, limit=most)
    pairs = enumerate(zip(sent, drafts, strict=True))
    return [_read(f"draft_probs.{at}", weights, token, vocabulary_size) for at, (weights, token) in pairs]


def _read(name: str, sent: Mapping[str, float], draft: int, vocabulary_size: int) -> Weights:
    refuse = partial(InvalidRequest.at, name)
    weights: dict[int, float] = {}
    for key, weight in sent.items():
        token = token_id(key)
        if token is None or token >= vocabulary_size:
            raise refuse(f"{key[:20]!r} is no token id of the vocabulary of {vocabulary_size} ids")
        if not 0.0 < weight <= 1.0 + _OFF:  # nor NaN
            raise refuse(f"the weight of {key} is {weight}, not above 0 and at most 1: leave out what cannot be drawn")
        weights[token] = weight
    if draft not in weights:
        raise refuse(f"the draft token {draft} is not among the ids: send the distribution that it was drawn from")
    total = math.fsum(weights.values())
    if abs(total - 1.0) > _OFF:
        raise refuse(f"the weights sum to {total:.6g}, not to 1: send the whole distribution that the draft is from")
    return dict(sorted(weights.items()))
