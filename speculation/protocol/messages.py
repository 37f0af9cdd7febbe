"""The messages of the protocol. Unknown keys are refused, so that a misspelt option is never dropped in silence."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from speculation.errors import InvalidRequest
from speculation.sampling import gumbel
from speculation.sampling.sampling import Sampling

TokenId = Annotated[int, Field(strict=True)]  # range is checked against the model's vocabulary
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]  # to name all that is wrong in a long one would take seconds
SESSION_ID = r"^[A-Za-z0-9._:-]{1,128}$"
SessionId = Annotated[str, Field(pattern=SESSION_ID)]
# Milliseconds from the moment the answer leaves until the next guess arrives, as the client expects, should this one
# fall. Behind a guess that stands the next is expected at once: a client that says this is one that drafts on.
NextInMs = Annotated[float, Field(strict=True, ge=0.0, le=1e7, allow_inf_nan=False)]


class Message(BaseModel):
    """Base of what a client sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=Message)


class _Prompted(Message):
    """A prompt and how to continue it.

    `committed_ids` are the tokens that an earlier request brought, sent with the same session id, prompt, `max_tokens`
    and seed: they stand and count as generated, and the reply begins behind them, at `position` = prompt_len +
    len(committed_ids). A verifier that knows the session goes on with it where its tokens begin with these, and else
    opens it anew with these; one that does not know it makes it. Only `self_continue`, `next_in_ms`, `explain`, and
    what says how `/generate` writes may differ from the earlier request. Of the committed tokens no decisions are known
    (null, where a reply carries these tokens); who asks to `explain` a session that was opened without, or without a
    session that was opened so, has it opened anew. The latest request has the session: a text of `/generate` that is
    still being written ends with `session_conflict`.
    """

    session_id: SessionId | None = None
    prompt: str | None = None
    prompt_ids: TokenIds | None = None
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None
    temperature: Annotated[float, Field(strict=True, ge=0.0, le=100.0)] = 0.0
    top_k: Annotated[int, Field(strict=True, ge=0)] = 0
    top_p: Annotated[float, Field(strict=True, gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Field(strict=True, ge=0, lt=gumbel.SEED_LIMIT)] | None = None
    strategy: Strategy = Strategy.COUPLED
    threshold: Annotated[float, Field(strict=True, ge=0.0, lt=1.0)] | None = None  # with the strategy of that name
    explain: Annotated[bool, Field(strict=True)] = False  # replies carry the decision on each token
    committed_ids: TokenIds = []  # behind the seed, which its check looks at

    @field_validator("committed_ids")
    @classmethod
    def _seed_of_what_is_committed(cls, ids: list[int], info: ValidationInfo) -> list[int]:
        if ids and info.data.get("seed", 0) is None:
            raise ValueError("give the seed, too, that the tokens were drawn with (`sampling.seed` of the first reply)")
        return ids

    @model_validator(mode="after")
    def _one_prompt(self) -> "_Prompted":
        if (self.prompt is None) == (self.prompt_ids is None):
            raise ValueError("give either prompt or prompt_ids")
        return self

    @model_validator(mode="after")
    def _threshold_where_it_belongs(self) -> "_Prompted":
        if self.strategy is Strategy.THRESHOLD and self.threshold is None:
            raise ValueError("the strategy threshold needs a threshold, from 0 to less than 1")
        if self.strategy is not Strategy.THRESHOLD and self.threshold is not None:
            raise ValueError(f"a threshold is not possible with the strategy {self.strategy}")
        return self

    def sampling(self, seed: int) -> Sampling:
        """These settings with the seed that was given or drawn."""
        return Sampling(seed=seed, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


class PrefillRequest(_Prompted):
    self_continue: Annotated[bool, Field(strict=True)] = False
    next_in_ms: NextInMs | None = None

    @model_validator(mode="after")
    def _may_self_continue(self) -> "PrefillRequest":
        if self.self_continue and self.strategy not in DRAFTER_INVARIANT:
            raise ValueError(
                f"self_continue is not possible with the strategy {self.strategy}: the text would depend on timing"
            )
        return self


class VerifyRequest(Message):
    session_id: SessionId | None = None
    position: Annotated[int, Field(strict=True, ge=0)] | None = None
    draft_tokens: TokenIds
    # What each draft was drawn from, with the strategy probabilistic: token id -> weight, summing to 1.
    draft_probs: Annotated[list[dict[str, Annotated[float, Field(strict=True)]]], Field(fail_fast=True)] | None = None
    next_in_ms: NextInMs | None = None
    self_continue: Annotated[bool, Field(strict=True)] | None = None  # from this guess on; None: as before


class BatchRequest(Message):
    """Guesses for several sessions. What is wrong with one item is its own affair, so they are read one by one."""

    items: Annotated[
        list[Annotated[Any, WithJsonSchema(VerifyRequest.model_json_schema())]], Field(min_length=1, max_length=256)
    ]

    def guess(self, number: int) -> VerifyRequest:
        """The item of this number. Raises InvalidRequest, also where its session is not named."""
        message = _read(VerifyRequest.model_validate, self.items[number])
        if message.session_id is None:
            raise InvalidRequest("session_id: Field required", param="session_id")
        return message


class TokenizeRequest(Message):
    text: str
    add_begin: Annotated[bool, Field(strict=True)] = True
    parse_control: Annotated[bool, Field(strict=True)] = False  # spelled-out control tokens become their ids


class GenerateRequest(_Prompted):
    mode: Literal["target", "fused"] = "target"  # fused: drafted on the server, too
    draft_n: Annotated[int, Field(strict=True, ge=0)] | None = None  # drafts a guess; None: as many as pay
    stream: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _drafts_where_it_says_so(self) -> "GenerateRequest":
        if self.draft_n is not None and self.mode != "fused":
            raise ValueError(f"draft_n: nothing is drafted in mode {self.mode}")
        return self


def parse(schema: type[M], body: bytes) -> M:
    """Read a message. Raises InvalidRequest in one plain sentence naming the field."""
    return _read(schema.model_validate_json, body)


def _read(validate: Callable[[Any], M], given: Any) -> M:
    try:
        return validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        others = error.error_count() - 1
        more = f" (and {others} more)" if others else ""
        what = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        what = what.removeprefix("Value error, ")
        raise InvalidRequest(f"{where + ': ' if where else ''}{what}{more}", param=where or None) from None


def check_session_id(session_id: str, field: str) -> None:
    """Raise InvalidRequest naming `field` for an id that a body could not carry either."""
    if not re.fullmatch(SESSION_ID, session_id):
        raise InvalidRequest(f"{field}: not a session id: 1 to 128 of A-Z a-z 0-9 . _ : -", param=field)


def sampling_body(sampling: Sampling, strategy: Strategy, threshold: float | None = None) -> dict[str, Any]:
    """How `sampling` is reported in replies."""
    body = {
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "strategy": str(strategy),
        "noise": gumbel.NAME,
    }
    return body if threshold is None else body | {"threshold": threshold}
