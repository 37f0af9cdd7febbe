"""Responses about the verifier: its health, its model and vocabulary, its sessions. As in `responses`."""

import hashlib
import json
from typing import Annotated, Literal

from pydantic import Field

from specpair.numbers import seconds
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.messages import SessionId
from specpair.protocol.response_fields import (
    FROM_OBJECT,
    Count,
    Identity,
    Milliseconds,
    Name,
    Noise,
    OrNotYet,
    Probability,
    PromptLength,
    Response,
    Tokens,
    TotalTokens,
)
from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.sampling import row_changes

_WIDEST = 8192  # tokens of a pass that is told, at most
ServiceStatus = Literal["loading", "ready", "overloaded", "draining", "failed", "verifier_away", "model_mismatch"]


class TokenizeResponse(Response):
    """Token ids of a text."""

    token_ids: Tokens


class HealthResponse(Response):
    """Whether the verifier can serve requests."""

    status: Annotated[
        ServiceStatus,
        Field(
            description="loading: the model is not loaded yet, or the server that runs it is away. draining: it "
            "stops, and ends the texts under way first. failed: the model could not be loaded, or the engine has "
            "failed for good. Of a drafter, verifier_away: its verifier does not answer; model_mismatch: that serves a "
            "model that cannot be drafted for."
        ),
    ]
    overloaded: Annotated[
        bool,
        Field(description="Whether new texts are refused now, because too much waits."),
    ] = False
    model: Annotated[Name | None, Field(description="The served model, when ready.")] = None
    identity: Annotated[Identity | None, Field(description="As in `/model`, when ready.")] = None
    target_identity: Annotated[
        Identity | None, Field(description="Of a drafter: the identity of its verifier, when ready.")
    ] = None
    sessions: Annotated[Count | None, Field(description="Sessions held, when ready.")] = None
    texts: Annotated[Count | None, Field(description="Texts under way that hold a KV slot, when ready.")] = None
    waiting: Annotated[Count | None, Field(description="Requests that wait for a forward pass, when ready.")] = None
    generated_tokens: Annotated[Count | None, Field(description="Tokens generated since the start, when ready.")] = None
    pass_seconds: Annotated[
        float | None, Field(ge=0, description="Seconds of forward passes since the start, when ready.")
    ] = None
    draft_model_failure: Annotated[
        str | None, Field(description="Why the target decodes texts of mode fused alone.")
    ] = None
    progress: Annotated[Probability | None, Field(description="Share of the model that is loaded, while loading.")] = (
        None
    )
    access: Annotated[
        Literal["unauthorized", "forbidden"] | None,
        Field(description="Why this caller is refused other endpoints, and is told status and progress only."),
    ] = None
    reason: Annotated[str | None, Field(description="Why it cannot serve, such as why loading failed.")] = None


class LiveResponse(Response):
    """Whether the service works, or could once its model is loaded."""

    status: Annotated[Literal["alive", "failed"], Field(description="failed: it has to be restarted.")]


class ReadyResponse(Response):
    """Whether the service takes new texts."""

    status: Annotated[ServiceStatus, Field(description="It takes new texts only when ready.")]


class ModelInfo(Response):
    """The served model and its limits."""

    name: Annotated[Name, Field(alias="model", description="The target model.")]
    identity: Identity
    engine: Annotated[Name, Field(alias="backend", description="The backend that runs it.")]
    context_length: Annotated[Count, Field(ge=1, description="Most tokens of a session, the prompt's included.")]
    rows: Annotated[Count, Field(ge=1, description="KV slots: sessions whose KV cache is held at a time.")]
    kv_bytes: Annotated[Count, Field(description="Bytes of the KV cache of all slots.")]
    max_drafts: Annotated[Count, Field(alias="max_draft_tokens", description="Most new draft tokens of a request.")]
    pass_ms: Annotated[
        list[Milliseconds],
        Field(fail_fast=True, description="Milliseconds of a pass over 1, 2, … tokens, measured at start."),
    ]
    wide_pass_ms: Annotated[
        list[Annotated[tuple[Annotated[Count, Field(ge=1, le=_WIDEST)], Milliseconds], Field(strict=False)]],
        Field(
            fail_fast=True,
            default_factory=list,
            description="Tokens of wider passes, as many sessions share, ascending, and milliseconds of each.",
        ),
    ]
    trees: Annotated[
        bool,
        Field(
            description="Whether drafts that are trees are judged as such; each of their tokens costs what a further "
            "token of a pass does (`pass_ms`). Otherwise of each its chain of likeliest tokens is judged."
        ),
    ] = False
    max_tree_leaves: Annotated[
        Count | None,
        Field(description="Most tokens of a tree that none follows; the rest is left out. Null: any number."),
    ] = None
    max_tree_nodes: Annotated[
        Count | None, Field(description="Most tokens of a tree; the rest is left out. Null: as many as of a chain.")
    ] = None
    strategies: Annotated[list[Name], Field(fail_fast=True, description="The rules for accepting draft tokens.")]
    refused: Annotated[
        dict[str, str],
        Field(default_factory=dict, description="Options of texts that the engine cannot serve, and why."),
    ]
    self_continue: Annotated[bool, Field(description="Whether the verifier supports self-continuation.")]
    modes: Annotated[list[Name], Field(fail_fast=True, description="Modes of `/generate`: target, fused.")]
    predictions: Annotated[
        bool, Field(description="Whether `/generate` takes a prediction, in mode fused, also without a draft model.")
    ]
    prefixes: Annotated[
        bool, Field(description="Whether `prefix` of `/prefill` and `/generate` may name an earlier text.")
    ] = False
    draft_model: Annotated[Name | None, Field(description="The draft model on the server, for mode fused.")]
    draft_pass_ms: Annotated[Milliseconds | None, Field(description="Its pass over one token; null: not measured.")]
    head: Annotated[Name | None, Field(description="The head that drafts for it, by its kind; null: none.")] = None
    head_depth: Annotated[Count, Field(description="Tokens that its own head drafts in a row, at most; 0: none.")] = 0
    head_pass_ms: Annotated[Milliseconds | None, Field(description="A step of the head; null: not measured.")] = None
    threads: Annotated[Count, Field(description="CPU threads that a pass keeps busy; 0: it runs on other devices.")] = 0
    machine: Annotated[
        Name | None, Field(description="A hash that is the same for all programs on the verifier's machine.")
    ] = None
    noise: Noise
    vocabulary: Annotated[Fingerprint, FROM_OBJECT]
    chat_template: Annotated[str | None, Field(description="The model's own Jinja template.")]

    @property
    def pass_times(self) -> CostByWidth:
        """Seconds of a pass over 1, 2, … tokens."""
        return CostByWidth.of([seconds(each) for each in self.pass_ms])

    @property
    def shared_pass_times(self) -> CostByWidth:
        """As `pass_times`, with the wider passes."""
        wide = [(tokens, seconds(each)) for tokens, each in self.wide_pass_ms]
        return CostByWidth([*enumerate(self.pass_times, 1), *wide])

    @property
    def draft_pass_time(self) -> float | None:
        """Seconds of the draft model's pass over one token; None: not measured."""
        return seconds(self.draft_pass_ms)

    @property
    def head_pass_time(self) -> float | None:
        """Seconds of a step of the model's own head; None: not measured."""
        return seconds(self.head_pass_ms)


class VocabularyResponse(Response):
    """All token ids."""

    size: Annotated[Count, Field(description="How many ids there are.")]
    begin: Annotated[Count | None, Field(description="The id that texts begin with; null: there is none.")]
    ends: Tokens
    end: Annotated[
        Count | None, Field(description="The one of `ends` that chat templates write; null: there is none.")
    ] = None
    kinds: Annotated[
        str,
        Field(pattern="^[012]*$", examples=["110"], description="One digit for each id: 0 text, 1 control, 2 unused."),
    ]
    pieces: Annotated[
        list[Annotated[str, Field(pattern=r"^[\x00-\xff]*$")]],
        Field(fail_fast=True, description="The bytes of each id, a byte as a character U+0000 to U+00FF."),
    ]


class SessionInfo(Response):
    """A session that the verifier holds."""

    session_id: Annotated[SessionId | None, Field(description="Only for callers with a key.")] = None
    prompt_len: PromptLength
    total_tokens: TotalTokens
    finish_reason: OrNotYet
    resident: Annotated[bool, Field(description="Whether it has a KV slot.")]
    prompt_read: Annotated[int, Field(ge=0, description="Tokens of its prompt that the slot holds.")]


class SessionsResponse(Response):
    """The sessions of the caller's key; without a key, all sessions without their ids."""

    sessions: Annotated[list[SessionInfo], Field(description="Those that the caller may see.")]


class KeyUsage(Response):
    """The usage of a key since the service was started."""

    key: Annotated[str | None, Field(description="Its name; null: callers without a key.")]
    requests: Annotated[Count, Field(description="Requests that may begin or continue a text.")]
    prompt_tokens: Annotated[Count, Field(description="Tokens of the prompts of texts that have begun.")]
    generated_tokens: Annotated[Count, Field(description="Tokens that were generated.")]
    draft_tokens: Annotated[Count, Field(description="Draft tokens that the target judged.")]
    accepted_tokens: Annotated[Count, Field(description="Of these, those accepted.")]


class UsageResponse(Response):
    """The usage of the caller's key; for an admin's key, of all keys."""

    keys: Annotated[list[KeyUsage], Field(description="One for each key, by name.")]


class DeletedResponse(Response):
    """A session was deleted."""

    session_id: SessionId
    deleted: Annotated[Literal[True], Field(description="A session that does not exist is an error instead.")]


_OF_THE_TEXT = {"name", "noise", "vocabulary"}
# Other values at each start of one verifier.
_MEASURED = {"pass_ms", "wide_pass_ms", "draft_pass_ms", "head_pass_ms", "kv_bytes", "identity"}
_OF_THE_PLACE = {"machine"}  # other values at each replica of one service


def identity_of(info: ModelInfo, model: str) -> str:
    """The identity of a verifier.

    `info`: what it serves, over its whole vocabulary.
    `model`: the target's own name, which `info` may give another name.
    """
    told = json.loads(info.model_dump_json(by_alias=False))
    text = [model, row_changes.NAME, *(told[name] for name in sorted(_OF_THE_TEXT))]
    service = [told[name] for name in sorted(set(told) - _OF_THE_TEXT - _MEASURED - _OF_THE_PLACE)]
    return f"{_hash(text, 16)}-{_hash(service, 8)}"


def continues(identity: str, other: str) -> bool:
    """Whether a text that was begun under one identity can go on under the other."""
    return identity.partition("-")[0] == other.partition("-")[0]


def _hash(value: object, digits: int) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:digits]
