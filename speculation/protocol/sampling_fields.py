"""The settings of logit processors, as fields of requests and of the sampling report."""

from typing import Annotated

from pydantic import Field

from speculation.sampling.sampling import BIAS, PENALTY, REPETITION

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
RepetitionPenalty = Annotated[
    float,
    Field(
        ge=REPETITION[0],
        le=REPETITION[1],
        description="Divides positive logits, and multiplies negative ones, of tokens in prompt or text; 1: off.",
    ),
]
LogitBias = Annotated[
    dict[str, Annotated[float, Field(ge=-BIAS, le=BIAS)]],
    Field(description="Token ids, as decimal numbers, with what is added to their logits."),
]
