"""The settings of logit processors, as fields of requests and of the sampling report."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from speculation.acceptance.draft_probs import token_id
from speculation.sampling.sampling import BIAS, MOST_MIN_TOKENS, PENALTY, REPETITION

MinP = Annotated[
    float, Field(ge=0.0, le=1.0, description="Mask tokens of less than this share of the greatest probability; 0: off.")
]
PresencePenalty = Annotated[
    float, Field(ge=-PENALTY, le=PENALTY, description="Subtracted from the logits of tokens that the text has; 0: off.")
]
FrequencyPenalty = Annotated[
    float,
    Field(
        ge=-PENALTY,
        le=PENALTY,
        description="Subtracted from the logits of tokens for each time that the text has them; 0: off.",
    ),
]
MinTokens = Annotated[
    int, Field(ge=0, le=MOST_MIN_TOKENS, description="Mask the end tokens until the text has so many tokens.")
]
RepetitionPenalty = Annotated[
    float,
    Field(
        ge=REPETITION[0],
        le=REPETITION[1],
        description="Divides positive logits, and multiplies negative ones, of tokens in prompt or text; 1: off.",
    ),
]


MOST_BIASES = 20_000  # of a request: each costs other requests microseconds


def _first_wrong(biases: Any) -> Any:
    """The first wrong bias alone, if there is one: to name every wrong one of hundreds of thousands takes seconds."""
    if isinstance(biases, dict) and len(biases) > MOST_BIASES:
        raise ValueError(f"there are {len(biases)} biases, at most {MOST_BIASES} are taken")
    for token, bias in biases.items() if isinstance(biases, dict) else ():
        if token_id(token) is None:
            raise ValueError(f"{token[:20]!r} is no token id: write it as a decimal number")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -BIAS <= bias <= BIAS:
            return {token: bias}
    return biases


LogitBias = Annotated[
    dict[str, Annotated[float, Field(ge=-BIAS, le=BIAS)]],
    BeforeValidator(_first_wrong),
    Field(
        description="Token ids, as decimal numbers, with what is added to their logits.",
        json_schema_extra={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"}},  # what `token_id` takes
    ),
]
