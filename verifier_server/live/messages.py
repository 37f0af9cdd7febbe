"""What is told of a verifier as it works: the data of the events of `GET /events`. Times are milliseconds."""

from typing import Annotated

from pydantic import Field

from specpair.http_service.replies.events import EventMessage
from specpair.protocol.service_responses import ServiceStatus

Number = Annotated[int, Field(ge=0)]


class EngineLoad(EventMessage):
    """What the engine holds."""

    waiting: Annotated[Number, Field(description="Requests that wait for a pass.")]
    running: Annotated[Number, Field(description="Requests that the pass under way may answer.")]
    slots: Annotated[Number, Field(description="Slots: sessions whose KV cache can be held at once.")]
    slots_in_use: Annotated[Number, Field(description="Slots of texts that have not ended.")]
    cached_tokens: Annotated[Number, Field(description="Tokens in all slots.")]
    kept_tokens: Annotated[Number, Field(description="Of these, those of texts that have ended.")]
    context_length: Annotated[Number, Field(description="Tokens that one slot can hold.")]
    evictions: Annotated[Number, Field(description="Texts under way that lost their slot to another one.")]


class VerifierState(EventMessage):
    """Whether the verifier takes texts, and how full it is: the first event, and again whenever it has changed."""

    status: Annotated[ServiceStatus, Field(description="As `/ready` says it.")]
    reason: Annotated[str | None, Field(description="Why it has failed, or what it waits for.")]
    progress: Annotated[float | None, Field(description="Share of the model that is loaded, while it loads.")]
    began_at: Annotated[float, Field(description="When the process began to serve, in seconds of Unix time.")]
    identity: Annotated[str | None, Field(description="As in `/model`, when ready.")]
    sessions: Annotated[Number, Field(description="Sessions held.")]
    sessions_in_use: Annotated[Number, Field(description="Of these, those with an open request.")]
    most_sessions: Annotated[Number, Field(description="Sessions that may be held at once.")]
    most_waiting: Annotated[Number, Field(description="Requests that may wait at once.")]
    generated_tokens: Annotated[Number, Field(description="Tokens generated since the start.")]
    engine: Annotated[EngineLoad | None, Field(description="Null: no model is loaded.")]


class ToldSession(EventMessage):
    """A session."""

    number: Annotated[int, Field(description="Which one, counted from 1 since the start.")]
    session_id: Annotated[str | None, Field(description="Only of the sessions of the caller's key.")]
    key: Annotated[str | None, Field(description="The name of the key that opened it; null: none did.")]
    mode: Annotated[str, Field(description="Who drafts: remote (the client), fused (the server) or target (nobody).")]
    prompt_tokens: Annotated[Number, Field(description="Tokens of its prompt.")]
    prompt_read: Annotated[Number, Field(description="Of these, those that its slot holds.")]
    generated: Annotated[Number, Field(description="Tokens committed after the prompt.")]
    most_tokens: Annotated[Number, Field(description="At so many, the text ends.")]
    drafted: Annotated[Number, Field(description="Draft tokens that the target judged.")]
    accepted: Annotated[Number, Field(description="Of these, those accepted.")]
    in_use: Annotated[bool, Field(description="Whether a request on it is open.")]
    resident: Annotated[bool, Field(description="Whether it has a KV slot.")]
    finish_reason: Annotated[str | None, Field(description="Null: its text has not ended.")]
    took_ms: Annotated[float, Field(description="From when its first request was queued to its last pass.")]


class ToldSessions(EventMessage):
    """The sessions that the caller may see: those of its key, or of all keys if its key is an admin's."""

    sessions: Annotated[
        list[ToldSession], Field(description="In `sessions`, those whose texts have not ended first, the newest first.")
    ]
    more: Annotated[Number, Field(description="How many further ones there are.")]


class ToldPass(EventMessage):
    """A forward pass of the target."""

    ended_ms: Annotated[float, Field(description="When, on the engine's clock, whose zero is arbitrary.")]
    took_ms: Annotated[float, Field(description="How long it took.")]
    queue_ms: Annotated[float, Field(description="The longest that a request waited for it, if it was its first.")]
    sessions: Annotated[Number, Field(description="Sessions that shared it.")]
    tokens: Annotated[Number, Field(description="Its width: tokens that were fed.")]
    prefilled: Annotated[Number, Field(description="Of these, those that were not judged, as those of a prompt.")]
    judged: Annotated[Number, Field(description="Draft tokens judged.")]
    accepted: Annotated[Number, Field(description="Of these, those accepted.")]
    committed: Annotated[Number, Field(description="Tokens committed.")]


class ToldPasses(EventMessage):
    """The passes since the last such event. A slow reader, for whom more than 512 have come, misses the oldest."""

    passes: Annotated[list[ToldPass], Field(description="In the order in which they ended.")]
