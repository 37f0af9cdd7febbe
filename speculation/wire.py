"""The messages of the protocol. Unknown keys are refused, so that a misspelt option is never dropped in silence."""

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from speculation import noise
from speculation.acceptance import Strategy
from speculation.errors import InvalidRequest
from speculation.sampling import Sampling

TokenId = Annotated[int, Field(strict=True)]  # range is checked against the model's vocabulary
_SESSION_ID = r"^[A-Za-z0-9._:-]{1,128}$"
SessionId = Annotated[str, Field(pattern=_SESSION_ID)]
# Milliseconds from the moment the answer leaves until the next guess arrives, as the client expects, should this one
# fall. Behind a guess that stands the next is expected at once: a client that says this is one that drafts on.
NextInMs = Annotated[float, Field(strict=True, ge=0.0, le=1e7, allow_inf_nan=False)]


class Message(BaseModel):
    """Base of what a client sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=Message)


class _Prompted(Message):
    """A prompt and how to continue it."""

    prompt: str | None = None
    prompt_ids: list[TokenId] | None = None
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None
    temperature: Annotated[float, Field(strict=True, ge=0.0, le=100.0)] = 0.0
    top_k: Annotated[int, Field(strict=True, ge=0)] = 0
    top_p: Annotated[float, Field(strict=True, gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Field(strict=True, ge=0, lt=noise.SEED_LIMIT)] | None = None
    strategy: Strategy = Strategy.COUPLED

    @model_validator(mode="after")
    def _one_prompt(self) -> "_Prompted":
        if (self.prompt is None) == (self.prompt_ids is None):
            raise ValueError("give either prompt or prompt_ids")
        return self

    def sampling(self, seed: int) -> Sampling:
        """These settings with the seed that was given or drawn."""
        return Sampling(seed=seed, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


# With other rules of acceptance the text would depend on which of the tokens came from guesses, and so on timing.
SELF_CONTINUING = frozenset({Strategy.COUPLED, Strategy.DETERMINISTIC})


class PrefillRequest(_Prompted):
    session_id: SessionId | None = None
    self_continue: Annotated[bool, Field(strict=True)] = False
    next_in_ms: NextInMs | None = None

    @model_validator(mode="after")
    def _may_self_continue(self) -> "PrefillRequest":
        if self.self_continue and self.strategy not in SELF_CONTINUING:
            raise ValueError(f"self_continue is not possible with the strategy {self.strategy}")
        return self


class VerifyRequest(Message):
    session_id: SessionId | None = None
    position: Annotated[int, Field(strict=True, ge=0)] | None = None
    draft_tokens: list[TokenId]
    next_in_ms: NextInMs | None = None
    self_continue: Annotated[bool, Field(strict=True)] | None = None  # from this guess on; None: as before


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
    try:
        return schema.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        others = error.error_count() - 1
        more = f" (and {others} more)" if others else ""
        what = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"{where + ': ' if where else ''}{what}{more}", param=where or None) from None


def check_session_id(session_id: str, field: str) -> None:
    """Raise InvalidRequest naming `field` for an id that a body could not carry either."""
    if not re.fullmatch(_SESSION_ID, session_id):
        raise InvalidRequest(f"{field}: not a session id: 1 to 128 of A-Z a-z 0-9 . _ : -", param=field)


def sampling_body(sampling: Sampling, strategy: Strategy) -> dict[str, Any]:
    """How `sampling` is reported in replies."""
    return {
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "strategy": str(strategy),
        "noise": noise.NAME,
    }
