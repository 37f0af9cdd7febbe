"""A guess as it is asked for: what has to go with its session, and where it begins if it does not say so."""

from backends.contract import Backend
from speculation import proposal, wire
from speculation.errors import InvalidRequest, SelfContinueRefused
from speculation.proposal import Weights
from verifier_server.jobs import Answer
from verifier_server.prompts import check_ids
from verifier_server.sessions import Session


def read_guess(backend: Backend, request: wire.VerifyRequest, session: Session) -> tuple[int, list[Weights]]:
    """Where it begins, and what its drafts were drawn from if that is said. Without a position it is the cursor's.

    Raises TokenOutOfRange, InvalidRequest, SelfContinueRefused.
    """
    check_ids(backend, "draft_tokens", request.draft_tokens)
    if session.self_continue:
        if request.position is None:
            raise implicit("position")
    elif request.self_continue is not None:
        raise SelfContinueRefused(
            "self_continue: the session was opened without; ask for it in the prefill", param="self_continue"
        )
    position = session.cursor if request.position is None else request.position
    return position, _proposals(backend, request, session)


def _proposals(backend: Backend, request: wire.VerifyRequest, session: Session) -> list[Weights]:
    sent = request.draft_probs
    if session.strategy.draws:
        if sent is None and request.draft_tokens:
            raise InvalidRequest(
                "draft_probs: Field required with the strategy probabilistic: what each draft token was drawn from",
                param="draft_probs",
            )
        return proposal.read(sent or [], request.draft_tokens, backend.vocabulary.size)
    if sent is not None:
        raise InvalidRequest(
            f"draft_probs: the strategy {session.strategy} makes no use of them: leave them out", param="draft_probs"
        )
    return []


def implicit(field: str) -> SelfContinueRefused:
    """The refusal of a guess that leaves a field out."""
    return SelfContinueRefused(
        f"{field} is missing: the verifier goes on with this session by itself, so say what is meant", param=field
    )


def move_on(request: wire.VerifyRequest, session: Session, answer: Answer) -> None:
    """The cursor follows an answer to a guess that left its position to it."""
    if request.position is None:
        session.cursor = min(answer.position + max(answer.accepted, 1), answer.total_tokens)
